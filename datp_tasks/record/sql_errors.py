"""Errors of PostgreSQL, for the rooms that give their work up or put it off when there is one."""

from sqlalchemy.exc import DBAPIError as DBAPIError
from sqlalchemy.exc import InterfaceError as InterfaceError
from sqlalchemy.exc import OperationalError as OperationalError
from sqlalchemy.exc import SQLAlchemyError as SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

__all__ = ["DBAPIError", "InterfaceError", "OperationalError", "PoolTimeout", "SQLAlchemyError"]
