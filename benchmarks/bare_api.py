"""What our API is measured against: a FastAPI handler that does one committed INSERT."""

from __future__ import annotations

import json
import os
import uuid
from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sqlalchemy import create_engine, text

TABLE = """
CREATE TABLE IF NOT EXISTS bare_accept (
    id text PRIMARY KEY, pipeline text NOT NULL, data json NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now())
"""
INSERT = text("INSERT INTO bare_accept (id, pipeline, data) VALUES (:id, :pipeline, :data)")


class Wanted(BaseModel):
    pipeline: str
    input: dict[str, Any]


def make() -> FastAPI:
    engine = create_engine(os.environ["DATP_DATABASE_URL"], pool_size=8, max_overflow=8)
    with engine.begin() as connection:
        connection.execute(text(TABLE))
    app = FastAPI()

    # Not async: FastAPI runs it in one of its threads, as it should with a driver that blocks.
    @app.post("/accept", status_code=202)
    def accept(wanted: Wanted) -> JSONResponse:
        made = uuid.uuid4().hex
        values = {"id": made, "pipeline": wanted.pipeline, "data": json.dumps(wanted.input)}
        with engine.begin() as connection:
            connection.execute(INSERT, values)
        return JSONResponse({"id": made}, status_code=202)

    @app.get("/healthz")
    def healthz() -> dict[str, str]:
        return {"status": "ok"}

    return app
