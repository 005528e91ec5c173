// Types of the DATP Tasks API, made from its OpenAPI document by `make clients`. Do not edit.

export type Accepted = {
  txId: string;
  status: "queued" | "running" | "sleeping" | "in-doubt" | "success" | "failed" | "aborted" | "cancelled" | "expired" | "internal-error";
};

export type ApprovalState = "pending" | "approved" | "executed" | "rejected" | "expired" | "stale";

export type ApproveIn = {
  /** What was checked; it is kept. */
  note?: string;
};

export type Batch = {
  service: string;
  batchId: string;
  position: number;
  owner: string;
  state: string;
  attempts: number;
  receipt: Record<string, unknown> | null;
  note: string | null;
  txId: string | null;
  createdAt: string;
  finalAt: string | null;
};

export type BatchIn = {
  service: string;
  /** The bytes for the ledger, in base64. */
  payload: string;
  batchId?: string | null;
};

export type BatchState = "NEW" | "SUBMITTING" | "DELAYED" | "UNKNOWN" | "PENDING" | "VALID" | "PARKED" | "COMMITTED" | "INVALID" | "REFUSED";

export type Batches = {
  batches: Batch[];
};

export type BulkIn = {
  /** Each as for POST /v1/transactions (TransactionIn). */
  transactions: unknown[];
};

export type BulkOut = {
  accepted: number;
  repeated: number;
  refused: number;
  results: BulkResult[];
};

export type BulkResult = {
  /** 202 new, 200 accepted before, else see problem. */
  status: number;
  txId?: string | null;
  transactionStatus?: ("queued" | "running" | "sleeping" | "in-doubt" | "success" | "failed" | "aborted" | "cancelled" | "expired" | "internal-error") | null;
  problem?: Record<string, unknown> | null;
};

export type CancelIn = {
  reason?: string;
};

export type EventOut = {
  sequence: number;
  kind: string;
  payload: Record<string, unknown>;
  createdAt: string;
};

export type Events = {
  events: EventOut[];
  /** The `after` of the next page. */
  nextAfter: number | null;
};

export type Health = {
  status: string;
};

export type HealthCheck = {
  subsystem: string;
  status: string;
  appVersion: string;
  datpVersion: string;
  buildTime: string | null;
};

export type OriginalSummary = {
  metadata: SummaryMetadata;
  progressReport: Record<string, unknown> | null;
  data: Record<string, unknown> | null;
};

export type Page = {
  transactions: Transaction[];
  /** Send as cursor; null at the end. */
  nextCursor: string | null;
};

/** RFC 9457. */
export type Problem = {
  type: string;
  title: string;
  status: number;
  detail: string;
  errors?: Record<string, string>[] | null;
  errorId?: string | null;
};

export type Readiness = {
  status: string;
  postgresql: string;
  redis: string;
  /** How many wait in this process. */
  longPolls: number;
};

export type RejectIn = {
  /** Why; it is kept. */
  note: string;
};

export type ResolveIn = {
  /** What became of the step that is in doubt. */
  decision: "done" | "redo" | "fail";
  /** Kept in the audit table. */
  reason: string;
  /** Act alone although the policy wants another person; an alert stays. */
  breakGlass?: boolean;
  /** With done: what the step returned. */
  output?: Record<string, unknown> | null;
};

export type RetryIn = {
  /** Kept in the audit table. */
  reason: string;
};

export type Start = {
  metadata?: StartMetadata;
  data?: Record<string, unknown>;
};

/** The options that have a meaning; others are kept, and shown to steps. */
export type StartMetadata = {
  externalId?: string | null;
  webhook?: string | null;
  progressReports?: boolean;
  pollReplyCancelsWebhook?: boolean;
  poll?: string | null;
  reply?: string | null;
};

export type StoredBatch = {
  service: string;
  batchId: string;
  position: number;
  state: string;
};

export type SummaryMetadata = {
  owner: string;
  txId: string;
  externalId: string | null;
  transactionType: string;
  status: string;
  completionTime: string | null;
  lastUpdated: string | null;
  notifiedTime: string | null;
  sequenceOfUpdate: number;
};

export type SwitchIn = {
  /** null removes the switch. */
  value: boolean | number | string | null;
};

export type Transaction = {
  txId: string;
  status: "queued" | "running" | "sleeping" | "in-doubt" | "success" | "failed" | "aborted" | "cancelled" | "expired" | "internal-error";
  owner: string;
  externalId: string | null;
  pipeline: string;
  version: string;
  /** The output, once it has ended. */
  data: Record<string, unknown> | null;
  progressReport: Record<string, unknown> | null;
  note: string | null;
  metadata: Record<string, unknown> | null;
  input: Record<string, unknown>;
  /** Number of its last event; the end is one. */
  sequence: number;
  webhook: string | null;
  createdAt: string;
  completedAt: string | null;
  expiresAt: string | null;
  /** Since when it cannot expire or be cancelled. */
  noReturnAt: string | null;
  /** Since when another system decides about it. */
  forwardedAt: string | null;
  notifiedAt: string | null;
  /** For operators: the key that handed it in. */
  submittedBy?: string | null;
  /** For operators: its request id and address. */
  origin?: string | null;
};

export type TransactionIn = {
  pipeline: string;
  /** What the first step gets. */
  data: Record<string, unknown>;
  /** Your own name for it; the same request again is the same transaction. */
  externalId?: string | null;
  /** Where to tell of its end; see docs/webhooks.md. */
  webhook?: string | null;
  metadata?: Record<string, unknown> | null;
  /** When it must be over, as 2027-01-31T12:00:00Z. */
  expiresAt?: string | null;
  expiresInSeconds?: number | null;
  /** The webhook is told of progress, too. */
  progressReports?: boolean;
  /** What a poll has told, the webhook need not. */
  cancelWebhookOnPoll?: boolean;
};

export type Woken = {
  woken: boolean;
};

export interface Operations {
  /** Actions */
  actions_v1_audit_actions_get: {
    method: "GET";
    path: "/v1/audit/actions";
    queryParameters: {
      subject?: string | null;
      keyId?: string | null;
      action?: string | null;
      before?: number | null;
      limit?: number;
    };
    replies: {
      200: Record<string, unknown>;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      429: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Alerts */
  alerts_v1_alerts_get: {
    method: "GET";
    path: "/v1/alerts";
    replies: {
      200: Record<string, unknown>;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      429: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Approval */
  approval_v1_approvals__number__get: {
    method: "GET";
    path: "/v1/approvals/{number}";
    pathParameters: {
      number: number;
    };
    replies: {
      200: Record<string, unknown>;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      429: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Approvals */
  approvals_v1_approvals_get: {
    method: "GET";
    path: "/v1/approvals";
    queryParameters: {
      state?: ApprovalState | null;
      before?: number | null;
      limit?: number;
    };
    replies: {
      200: Record<string, unknown>;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      429: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Approve */
  approve_v1_approvals__number__approve_post: {
    method: "POST";
    path: "/v1/approvals/{number}/approve";
    pathParameters: {
      number: number;
    };
    body: ApproveIn;
    replies: {
      200: Record<string, unknown>;
      409: Problem;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      415: Problem;
      429: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Cancel */
  cancel_v1_transactions__txId__cancel_post: {
    method: "POST";
    path: "/v1/transactions/{txId}/cancel";
    pathParameters: {
      txId: string;
    };
    body: CancelIn | null;
    replies: {
      200: Transaction;
      409: Problem;
      422: Problem;
      400: Problem;
      401: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      415: Problem;
      429: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Deltas */
  deltas_v1_transactions__txId__deltas_get: {
    method: "GET";
    path: "/v1/transactions/{txId}/deltas";
    pathParameters: {
      txId: string;
    };
    replies: {
      200: Record<string, unknown>;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      429: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Disable */
  disable_v1_pipelines__name__disable_post: {
    method: "POST";
    path: "/v1/pipelines/{name}/disable";
    pathParameters: {
      name: string;
    };
    replies: {
      200: Record<string, unknown>;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      429: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Events */
  events_v1_transactions__txId__events_get: {
    method: "GET";
    path: "/v1/transactions/{txId}/events";
    pathParameters: {
      txId: string;
    };
    queryParameters: {
      after?: number;
      limit?: number;
    };
    replies: {
      200: Events;
      422: Problem;
      400: Problem;
      401: Problem;
      404: Problem;
      429: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Find */
  find_v1_batches_get: {
    method: "GET";
    path: "/v1/batches";
    queryParameters: {
      service?: string | null;
      state?: BatchState | null;
      withFinal?: boolean;
      limit?: number;
    };
    replies: {
      200: Batches;
      422: Problem;
      400: Problem;
      401: Problem;
      404: Problem;
      429: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Find */
  find_v1_transactions_get: {
    method: "GET";
    path: "/v1/transactions";
    queryParameters: {
      externalId?: string | null;
      status?: ("queued" | "running" | "sleeping" | "in-doubt" | "success" | "failed" | "aborted" | "cancelled" | "expired" | "internal-error") | null;
      pipeline?: string | null;
      from?: string | null;
      to?: string | null;
      owner?: string | null;
      limit?: number;
      cursor?: string | null;
    };
    replies: {
      200: Page;
      422: Problem;
      400: Problem;
      401: Problem;
      404: Problem;
      429: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Find */
  find_v1_webhooks_get: {
    method: "GET";
    path: "/v1/webhooks";
    queryParameters: {
      state?: ("pending" | "delivered" | "dead" | "cancelled") | null;
      txId?: string | null;
      limit?: number;
    };
    replies: {
      200: Record<string, unknown>;
      422: Problem;
      400: Problem;
      401: Problem;
      404: Problem;
      429: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Healthcheck */
  healthcheck_datp_1_0_healthcheck_get: {
    method: "GET";
    path: "/datp/1.0/healthcheck";
    replies: {
      200: HealthCheck;
      400: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Healthcheck */
  healthcheck_datp_1_0_ping_get: {
    method: "GET";
    path: "/datp/1.0/ping";
    replies: {
      200: HealthCheck;
      400: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Healthz */
  healthz_healthz_get: {
    method: "GET";
    path: "/healthz";
    replies: {
      200: Health;
      400: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** In Doubt */
  in_doubt_v1_in_doubt_get: {
    method: "GET";
    path: "/v1/in-doubt";
    replies: {
      200: Record<string, unknown>;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      429: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Nodes */
  nodes_v1_nodes_get: {
    method: "GET";
    path: "/v1/nodes";
    replies: {
      200: Record<string, unknown>;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      429: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Pipeline */
  pipeline_v1_pipelines__name__get: {
    method: "GET";
    path: "/v1/pipelines/{name}";
    pathParameters: {
      name: string;
    };
    replies: {
      200: Record<string, unknown>;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      429: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Pipelines */
  pipelines_v1_pipelines_get: {
    method: "GET";
    path: "/v1/pipelines";
    replies: {
      200: Record<string, unknown>;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      429: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Queues */
  queues_v1_queues_get: {
    method: "GET";
    path: "/v1/queues";
    replies: {
      200: Record<string, unknown>;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      429: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Readyz */
  readyz_readyz_get: {
    method: "GET";
    path: "/readyz";
    replies: {
      200: Readiness;
      400: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Redeliver */
  redeliver_v1_webhooks__id__redeliver_post: {
    method: "POST";
    path: "/v1/webhooks/{id}/redeliver";
    pathParameters: {
      id: string;
    };
    replies: {
      200: Record<string, unknown>;
      409: Problem;
      422: Problem;
      400: Problem;
      401: Problem;
      404: Problem;
      429: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Reject */
  reject_v1_approvals__number__reject_post: {
    method: "POST";
    path: "/v1/approvals/{number}/reject";
    pathParameters: {
      number: number;
    };
    body: RejectIn;
    replies: {
      200: Record<string, unknown>;
      409: Problem;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      415: Problem;
      429: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Resolve */
  resolve_v1_transactions__txId__resolve_post: {
    method: "POST";
    path: "/v1/transactions/{txId}/resolve";
    pathParameters: {
      txId: string;
    };
    body: ResolveIn;
    replies: {
      200: Record<string, unknown>;
      409: Problem;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      415: Problem;
      429: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Retry */
  retry_v1_transactions__txId__retry_post: {
    method: "POST";
    path: "/v1/transactions/{txId}/retry";
    pathParameters: {
      txId: string;
    };
    body: RetryIn;
    replies: {
      200: Record<string, unknown>;
      409: Problem;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      415: Problem;
      429: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Scraped */
  scraped_metrics_get: {
    method: "GET";
    path: "/metrics";
    replies: {
      200: undefined;
      400: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Series */
  series_v1_metrics_get: {
    method: "GET";
    path: "/v1/metrics";
    queryParameters: {
      resolution?: "fine" | "middle" | "coarse";
      by?: string;
    };
    replies: {
      200: Record<string, unknown>;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      429: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Set Switch */
  set_switch_v1_transactions__txId__switches__name__put: {
    method: "PUT";
    path: "/v1/transactions/{txId}/switches/{name}";
    pathParameters: {
      txId: string;
      name: string;
    };
    body: SwitchIn;
    replies: {
      200: Woken;
      409: Problem;
      422: Problem;
      400: Problem;
      401: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      415: Problem;
      429: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Show */
  show_v1_webhooks__id__get: {
    method: "GET";
    path: "/v1/webhooks/{id}";
    pathParameters: {
      id: string;
    };
    replies: {
      200: Record<string, unknown>;
      422: Problem;
      400: Problem;
      401: Problem;
      404: Problem;
      429: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Start */
  start_datp_1_0_tx_start__transactionType__put: {
    method: "PUT";
    path: "/datp/1.0/tx/start/{transactionType}";
    pathParameters: {
      transactionType: string;
    };
    body: Start;
    replies: {
      200: OriginalSummary;
      409: Problem;
      422: Problem;
      400: Problem;
      401: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      415: Problem;
      429: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** State */
  state_v1_transactions__txId__state_get: {
    method: "GET";
    path: "/v1/transactions/{txId}/state";
    pathParameters: {
      txId: string;
    };
    replies: {
      200: Record<string, unknown>;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      429: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Status By External Id */
  status_by_external_id_datp_1_0_tx_statusByExternalId__externalId__get: {
    method: "GET";
    path: "/datp/1.0/tx/statusByExternalId/{externalId}";
    pathParameters: {
      externalId: string;
    };
    queryParameters: {
      reply?: string | null;
    };
    replies: {
      200: OriginalSummary;
      422: Problem;
      400: Problem;
      401: Problem;
      404: Problem;
      429: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Status */
  status_datp_1_0_tx_status__txId__get: {
    method: "GET";
    path: "/datp/1.0/tx/status/{txId}";
    pathParameters: {
      txId: string;
    };
    queryParameters: {
      reply?: string | null;
    };
    replies: {
      200: OriginalSummary;
      422: Problem;
      400: Problem;
      401: Problem;
      404: Problem;
      429: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Status */
  status_v1_batches__service___batchId__get: {
    method: "GET";
    path: "/v1/batches/{service}/{batchId}";
    pathParameters: {
      service: string;
      batchId: string;
    };
    replies: {
      200: Batch;
      422: Problem;
      400: Problem;
      401: Problem;
      404: Problem;
      429: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Status */
  status_v1_transactions__txId__get: {
    method: "GET";
    path: "/v1/transactions/{txId}";
    pathParameters: {
      txId: string;
    };
    queryParameters: {
      wait?: number;
      after?: number | null;
    };
    replies: {
      200: Transaction;
      422: Problem;
      400: Problem;
      401: Problem;
      404: Problem;
      429: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Submit Bulk */
  submit_bulk_v1_transactions_bulk_post: {
    method: "POST";
    path: "/v1/transactions/bulk";
    body: BulkIn;
    replies: {
      200: BulkOut;
      422: Problem;
      400: Problem;
      401: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      415: Problem;
      429: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Submit */
  submit_v1_batches_post: {
    method: "POST";
    path: "/v1/batches";
    body: BatchIn;
    replies: {
      202: StoredBatch;
      200: StoredBatch;
      409: Problem;
      422: Problem;
      400: Problem;
      401: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      415: Problem;
      429: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Submit */
  submit_v1_transactions_post: {
    method: "POST";
    path: "/v1/transactions";
    body: TransactionIn;
    replies: {
      202: Accepted;
      200: Accepted;
      409: Problem;
      422: Problem;
      400: Problem;
      401: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      415: Problem;
      429: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Unmask */
  unmask_v1_transactions__txId__unmask_post: {
    method: "POST";
    path: "/v1/transactions/{txId}/unmask";
    pathParameters: {
      txId: string;
    };
    body: RetryIn;
    replies: {
      200: Record<string, unknown>;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      415: Problem;
      429: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Use */
  use_v1_pipelines__name__versions__version__use_post: {
    method: "POST";
    path: "/v1/pipelines/{name}/versions/{version}/use";
    pathParameters: {
      name: string;
      version: string;
    };
    replies: {
      200: Record<string, unknown>;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      429: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Wake */
  wake_v1_transactions__txId__wake_post: {
    method: "POST";
    path: "/v1/transactions/{txId}/wake";
    pathParameters: {
      txId: string;
    };
    replies: {
      200: Woken;
      409: Problem;
      422: Problem;
      400: Problem;
      401: Problem;
      404: Problem;
      429: Problem;
      500: Problem;
      503: Problem;
    };
  };
}
