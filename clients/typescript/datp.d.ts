// Types of the DATP Tasks API, made from its OpenAPI document by `make clients`. Do not edit.

export type Accepted = {
  txId: string;
  status: "queued" | "running" | "sleeping" | "in-doubt" | "success" | "failed" | "aborted" | "cancelled" | "expired" | "internal-error";
};

export type ActedOn = {
  txId: string;
  ok: boolean;
  /** What was done, or why nothing was. */
  what: string;
};

export type AlertClosed = {
  id: number;
  closed: boolean;
};

export type AlertShown = {
  id: number;
  kind: string;
  subject: string;
  summary: string;
  createdAt: string;
};

export type AlertsShown = {
  /** Send as `cursor`; null at the end. */
  nextCursor: string | null;
  /** Whether there is another page. */
  hasMore: boolean;
  /** The most that this page could have. */
  limit: number;
  alerts: AlertShown[];
};

export type AppliedMapping = {
  name: string;
  version: string;
  /** False: the same content was stored before. */
  new: boolean;
};

export type AppliedVersion = {
  name: string;
  version: string;
  /** False: the same content was stored before. */
  new: boolean;
  state: "draft" | "committed";
  warnings: string[];
};

/** The action waits for another person. */
export type ApprovalAsked = {
  /** Its number. */
  approval: number;
  href: string;
  detail: string;
};

export type ApprovalDecisionShown = {
  by: string;
  decision: string;
};

export type ApprovalShown = {
  id: number;
  state: string;
  action: string;
  subject: string;
  params: Record<string, unknown>;
  reason: string | null;
  needed: number;
  agreed: number;
  createdAt: string;
  expiresAt: string;
  decidedAt: string | null;
  executedAt: string | null;
  decisions: ApprovalDecisionShown[];
};

export type ApprovalState = "pending" | "approved" | "executed" | "rejected" | "expired" | "stale";

export type ApprovalsShown = {
  /** Send as `cursor`; null at the end. */
  nextCursor: string | null;
  /** Whether there is another page. */
  hasMore: boolean;
  /** The most that this page could have. */
  limit: number;
  approvals: ApprovalShown[];
};

export type ApproveIn = {
  /** What was checked; it is kept. */
  note?: string;
};

export type AuditActionShown = {
  id: number;
  at: string;
  actor: string;
  keyId: string | null;
  requestId: string | null;
  address: string | null;
  action: string;
  subject: string;
  reason: string | null;
  details: unknown;
  /** In the chain; null: not sealed yet. */
  position: number | null;
  hash: string | null;
};

export type AuditActionsShown = {
  /** Send as `cursor`; null at the end. */
  nextCursor: string | null;
  /** Whether there is another page. */
  hasMore: boolean;
  /** The most that this page could have. */
  limit: number;
  actions: AuditActionShown[];
};

export type AuditIn = {
  /** So many, chosen at random; 1000 by default. */
  sample?: number | null;
  /** All transactions, instead of a sample. */
  everything?: boolean;
  /** The same seed takes the same sample. */
  seed?: number;
};

export type AuditShown = {
  id: number;
  /** failed: `note` says why, and what was done is counted. */
  state: RunState;
  requestedBy: string;
  createdAt: string;
  endedAt: string | null;
  note: string | null;
  /** null: all transactions. */
  sample: number | null;
  seed: number;
  /** Transactions there were when it began. */
  total: number;
  audited: number;
  /** Without a journal any more, as retention says. */
  dropped: number;
  /** Whose journals do not lead to what we have. */
  wrong: number;
  /** The first 100 of them. */
  misfits: Misfit[];
};

export type AuditsShown = {
  /** Send as `cursor`; null at the end. */
  nextCursor: string | null;
  /** Whether there is another page. */
  hasMore: boolean;
  /** The most that this page could have. */
  limit: number;
  audits: AuditShown[];
};

export type BatchDecided = {
  service: string;
  batchId: string;
  /** After the decision. */
  state: string;
};

export type BatchIn = {
  service: string;
  /** The bytes for the ledger, in base64. */
  payload: string;
  batchId?: string | null;
};

export type BatchReceipt = {
  transactionId: string;
  /** As that of its batch: a ledger takes all or none. */
  state: string;
  /** What the ledger said of this transaction. */
  note: string | null;
};

export type BatchReceipts = {
  /** Send as `cursor`; null at the end. */
  nextCursor: string | null;
  /** Whether there is another page. */
  hasMore: boolean;
  /** The most that this page could have. */
  limit: number;
  receipts: BatchReceipt[];
};

export type BatchState = "NEW" | "SUBMITTING" | "DELAYED" | "UNKNOWN" | "PENDING" | "VALID" | "PARKED" | "COMMITTED" | "INVALID" | "REFUSED";

export type Batches = {
  /** Send as `cursor`; null at the end. */
  nextCursor: string | null;
  /** Whether there is another page. */
  hasMore: boolean;
  /** The most that this page could have. */
  limit: number;
  batches: LedgerBatch[];
};

export type BulkActionIn = {
  action: "cancel" | "wake" | "retry";
  where: WhereIn;
  /** As the preview counted; else 409. */
  expectedCount: number;
  /** As the preview named the set; else 409. */
  selection: string;
  /** Kept in the audit table. */
  reason: string;
  /** Act alone although the policy wants another person; an alert stays. */
  breakGlass?: boolean;
};

export type BulkActionOut = {
  done: number;
  failed: number;
  results: ActedOn[];
};

export type BulkCancelIn = {
  reason?: string;
  /** Of an operator: act alone although the policy wants another person; an alert stays. */
  breakGlass?: boolean;
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
  /** Its place in the request, from 0. */
  index: number;
  /** As it was sent. */
  externalId: string | null;
  /** 202 new, 200 accepted before, else see problem. */
  status: number;
  txId?: string | null;
  transactionStatus?: ("queued" | "running" | "sleeping" | "in-doubt" | "success" | "failed" | "aborted" | "cancelled" | "expired" | "internal-error") | null;
  problem?: Record<string, unknown> | null;
};

export type BulkTransferAccepted = {
  bulkId: string;
  /** It was accepted before. */
  duplicate: boolean;
};

export type BulkTransferCancelled = {
  bulkId: string;
  externalId: string | null;
  pipeline: string;
  state: "RECEIVED" | "PROCESSING" | "EXPIRING" | "COMPLETED" | "EXPIRED";
  createdAt: string;
  /** Of all transfers, at the latest. */
  expiresAt: string | null;
  completedAt: string | null;
  /** Transfers by status. */
  counts: Record<string, number>;
  transfers: CancelledTransfer[];
  /** Transfers by what became of the cancel, also of those not shown. */
  cancelCounts: Record<string, number>;
};

export type BulkTransferIn = {
  /** One with the step util/bulk-transfer. */
  pipeline: string;
  /** What the pipeline of the bulk gets beside the transfers. */
  input?: Record<string, unknown>;
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
  /** Each is a transaction. */
  transfers: TransactionIn[];
};

export type BulkTransferShown = {
  bulkId: string;
  externalId: string | null;
  pipeline: string;
  state: "RECEIVED" | "PROCESSING" | "EXPIRING" | "COMPLETED" | "EXPIRED";
  createdAt: string;
  /** Of all transfers, at the latest. */
  expiresAt: string | null;
  completedAt: string | null;
  /** Transfers by status. */
  counts: Record<string, number>;
  transfers: TransferShown[];
};

export type CancelIn = {
  reason?: string;
};

export type CancelledTransfer = {
  /** Its place in the request, from 0. */
  index: number;
  externalId?: string | null;
  txId?: string | null;
  status: ("queued" | "running" | "sleeping" | "in-doubt" | "success" | "failed" | "aborted" | "cancelled" | "expired" | "internal-error") | ("refused" | "duplicate" | "gone");
  note?: string | null;
  completedAt?: string | null;
  /** Why it was refused. */
  problem?: string | null;
  /** The transaction that it was accepted as before. */
  duplicateOf?: string | null;
  /** `cancelled`: it has ended so. `stopping`: it is asked to stop; it goes on if its current step passes its point of no return. `waiting`: it is not asked yet; a job goes on with what was approved. `ended`: it had ended otherwise. `no-return`: it is past its point of no return, or forwarded, and goes on. `refused`: `cancelNote` says why. `none`: it has no transaction in this bulk. */
  cancel: "cancelled" | "stopping" | "waiting" | "ended" | "no-return" | "refused" | "none";
  cancelNote?: string | null;
};

export type CaseShown = {
  case: string;
  passed: boolean;
  status: string;
  /** Where it differs from what is expected. */
  mistakes: string[];
};

export type CasesShown = {
  name: string;
  version: string;
  passed: number;
  failed: number;
  cases: CaseShown[];
};

export type CheckedDefinition = {
  valid: boolean;
  name: string | null;
  /** What `apply` would call it. */
  version: string | null;
  mistakes: string[];
  /** Steps that no live node offers. */
  warnings: string[];
};

/** All of an owner, one external id of an owner, or a subject (of an owner, or of all). */
export type ChosenIn = {
  owner?: string | null;
  externalId?: string | null;
  /** Looked for in input, metadata and output. */
  subject?: SubjectIn | null;
};

export type ClaimShown = {
  service: string;
  claimant: string | null;
  epoch: number;
  expiresAt: string | null;
  isLive: boolean | null;
  waiting: number;
  /** The batch that is first in line. */
  head: string | null;
  headState: string | null;
};

export type ClaimsShown = {
  /** Send as `cursor`; null at the end. */
  nextCursor: string | null;
  /** Whether there is another page. */
  hasMore: boolean;
  /** The most that this page could have. */
  limit: number;
  claims: ClaimShown[];
};

export type CloneIn = {
  /** What the new pipeline is called. */
  name: string;
  /** Else the one in use. */
  version?: string | null;
};

export type CloseIn = {
  /** Kept in the audit table. */
  reason: string;
};

/** With `format=cloudevents`. */
export type CloudEvent = {
  specversion: "1.0";
  id: string;
  source: string;
  type: string;
  subject: string;
  time: string;
  datacontenttype: "application/json";
  data: FeedData;
};

export type CommitIn = {
  /** What was changed, and why. */
  comment: string;
};

export type DefinitionIn = {
  /** The definition as an object, as its file has it. */
  definition?: Record<string, unknown> | null;
  /** Or as the text of a YAML file. */
  yaml?: string | null;
};

export type DeliveriesShown = {
  /** Send as `cursor`; null at the end. */
  nextCursor: string | null;
  /** Whether there is another page. */
  hasMore: boolean;
  /** The most that this page could have. */
  limit: number;
  webhooks: DeliveryShown[];
};

export type DeliveryAttemptShown = {
  attempt: number;
  begunAt: string;
  endedAt: string | null;
  httpStatus: number | null;
  error: string | null;
  tookMs: number | null;
};

export type DeliveryShown = {
  id: string;
  txId: string;
  /** null of one to an endpoint. */
  sequence: number | null;
  endpointId: string | null;
  kind: string;
  owner: string;
  url: string;
  state: "pending" | "delivered" | "dead" | "cancelled";
  attemptCount: number;
  nextAt: string | null;
  held: boolean;
  createdAt: string;
  firstAttemptAt: string | null;
  finishedAt: string | null;
  lastStatus: number | null;
  lastError: string | null;
};

export type DeliveryWithAttempts = {
  id: string;
  txId: string;
  /** null of one to an endpoint. */
  sequence: number | null;
  endpointId: string | null;
  kind: string;
  owner: string;
  url: string;
  state: "pending" | "delivered" | "dead" | "cancelled";
  attemptCount: number;
  nextAt: string | null;
  held: boolean;
  createdAt: string;
  firstAttemptAt: string | null;
  finishedAt: string | null;
  lastStatus: number | null;
  lastError: string | null;
  attempts: DeliveryAttemptShown[];
};

export type DiagnosisShown = {
  healthy: boolean;
  inFlight: InFlightShown[];
  inDoubt: InDoubtShown[];
  violations: ViolationShown[];
  sizes: Record<string, number>;
  journalBacklog: number;
  lostShards: string[];
  openAlerts: number;
};

export type DoubtShown = {
  txId: string;
  place: string;
  stepType: string;
  sinceMs: number;
  why: string;
};

export type DoubtsShown = {
  /** Send as `cursor`; null at the end. */
  nextCursor: string | null;
  /** Whether there is another page. */
  hasMore: boolean;
  /** The most that this page could have. */
  limit: number;
  transactions: DoubtShown[];
};

export type EndpointChange = {
  url?: string | null;
  types?: string[] | null;
  description?: string | null;
  enabled?: boolean | null;
};

export type EndpointIn = {
  url: string;
  /** Empty: all but `payee.completed`. */
  types?: string[];
  description?: string;
  /** For operators: of whom. */
  owner?: string | null;
};

export type EndpointMade = {
  id: string;
  owner: string;
  url: string;
  /** Empty: all but `payee.completed`. */
  types: string[];
  description: string;
  enabled: boolean;
  disabledReason: string | null;
  createdAt: string;
  updatedAt: string;
  /** What is told again just now. */
  replay: EndpointReplayShown | null;
  /** Signs what is sent: shown now and never again. */
  secret: string;
};

export type EndpointReplayShown = {
  from: string;
  to: string;
};

export type EndpointShown = {
  id: string;
  owner: string;
  url: string;
  /** Empty: all but `payee.completed`. */
  types: string[];
  description: string;
  enabled: boolean;
  disabledReason: string | null;
  createdAt: string;
  updatedAt: string;
  /** What is told again just now. */
  replay: EndpointReplayShown | null;
};

export type EndpointsShown = {
  /** Send as `cursor`; null at the end. */
  nextCursor: string | null;
  /** Whether there is another page. */
  hasMore: boolean;
  /** The most that this page could have. */
  limit: number;
  endpoints: EndpointShown[];
};

export type ErasureCounted = {
  count: number;
  /** There are more; it was not counted to the end. */
  more: boolean;
};

export type ErasureIn = {
  owner?: string | null;
  externalId?: string | null;
  /** Looked for in input, metadata and output. */
  subject?: SubjectIn | null;
  /** Kept in the audit table; it must not name the value. */
  reason: string;
};

export type ErasureShown = {
  id: number;
  /** failed: `note` says why, and what was done is counted. */
  state: RunState;
  requestedBy: string;
  createdAt: string;
  endedAt: string | null;
  note: string | null;
  owner: string | null;
  externalId: string | null;
  /** Its pointer; the value is kept nowhere. */
  subject: string | null;
  reason: string;
  /** The approval that was used for it. */
  approvedBy: number | null;
  erased: number;
  refused: number;
  /** The first 100, with what to do. */
  refusals: Refusal[];
  /** Batches for ledgers of the whole owner. */
  batches: number;
  /** Kept answers of the whole owner. */
  keptAnswers: number;
  /** Data keys of the whole owner. */
  dataKeys: number;
};

export type ErasuresShown = {
  /** Send as `cursor`; null at the end. */
  nextCursor: string | null;
  /** Whether there is another page. */
  hasMore: boolean;
  /** The most that this page could have. */
  limit: number;
  erasures: ErasureShown[];
};

export type EventOut = {
  sequence: number;
  kind: string;
  payload: Record<string, unknown>;
  createdAt: string;
};

export type Events = {
  /** Send as `cursor`; null at the end. */
  nextCursor: string | null;
  /** Whether there is another page. */
  hasMore: boolean;
  /** The most that this page could have. */
  limit: number;
  events: EventOut[];
};

/** For `importPipeline` elsewhere; the hash is that of the definition. */
export type ExportedPipeline = {
  format: string;
  name: string;
  version: string;
  contentHash: string;
  comment: string | null;
  definition: Record<string, unknown>;
};

/** The transaction as of the event; with more fields as they come. */
export type FeedData = {
  txId: string;
  status: string;
};

export type FeedEventShown = {
  id: string;
  /** Send as `after` to go on behind this one. */
  cursor: string;
  type: string;
  timestamp: string;
  owner: string;
  data: FeedData;
};

export type FeedPageShown = {
  events: (FeedEventShown | CloudEvent)[];
  /** Send as `after`; a feed has no end. */
  nextCursor: string;
  /** Whether there is another page now. */
  hasMore: boolean;
  /** The most that this page could have. */
  limit: number;
};

export type GroupIn = {
  /** Names: concurrency, archiveBatchSize, webhookWorkers, wakeupBatchSize, ledger, webhookPause, webhookPauseBusy, webhookPauseIdle, longRunningSeconds, queueAgeSeconds. null: the default again. */
  values: Record<string, number | null>;
  reason?: string | null;
};

export type GroupShown = {
  name: string;
  /** What was decided; others are default. */
  values: Record<string, number>;
  roles: string[];
  stopped: boolean;
  /** Live workers. */
  nodes: number;
  busy: number;
  transactionsPerS: number;
  /** Messages; null: the broker is unavailable. */
  waiting: number | null;
};

export type GroupsShown = {
  /** Send as `cursor`; null at the end. */
  nextCursor: string | null;
  /** Whether there is another page. */
  hasMore: boolean;
  /** The most that this page could have. */
  limit: number;
  groups: GroupShown[];
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

export type InDoubtShown = {
  txId: string;
  place: string;
  stepType: string;
  since: string;
  why: string;
};

export type InFlightNowShown = {
  /** By the clock that `since` is of. */
  now: string;
  inFlight: InFlightShown[];
};

export type InFlightShown = {
  txId: string;
  node: string;
  place: string;
  stepType: string;
  since: string;
  orphaned: boolean;
  midStep: boolean;
};

export type InputSchemaShown = {
  pipeline: string;
  version: string;
  /** JSON Schema 2020-12; any object if the pipeline has none. */
  inputSchema: Record<string, unknown>;
  /** derived: from the type of the input of its first step. */
  source: "written" | "derived" | "none";
  /** Whether an input that does not fit is refused. */
  checked: boolean;
};

export type JournalEntryShown = {
  version: number;
  before: number;
  fence: number;
  kind: string;
  extra: string;
  deltas: Record<string, unknown>[];
};

export type JournalShown = {
  txId: string;
  entries: JournalEntryShown[];
  faults: string[];
};

export type KeyIn = {
  owner: string;
  /** For an operator: it sees every owner. null: a client's. */
  role?: Role | null;
  /** What it may do, instead of what is safe by default. */
  grants?: string[] | null;
  /** What it is for, for people. */
  name?: string | null;
  expiresInSeconds?: number | null;
};

export type KeyMade = {
  id: string;
  owner: string;
  role: Role | null;
  grants: string[] | null;
  name: string | null;
  createdAt: string;
  expiresAt: string | null;
  revokedAt: string | null;
  lastUsedAt: string | null;
  /** The key itself: shown now and never again. */
  key: string;
};

export type KeyRingShown = {
  keys: RingKeyShown[];
};

export type KeyShown = {
  id: string;
  owner: string;
  role: Role | null;
  grants: string[] | null;
  name: string | null;
  createdAt: string;
  expiresAt: string | null;
  revokedAt: string | null;
  lastUsedAt: string | null;
};

export type KeysShown = {
  /** Send as `cursor`; null at the end. */
  nextCursor: string | null;
  /** Whether there is another page. */
  hasMore: boolean;
  /** The most that this page could have. */
  limit: number;
  keys: KeyShown[];
};

export type LedgerBatch = {
  service: string;
  batchId: string;
  /** In the line of the service, which owners share; for operators. */
  position: number | null;
  owner: string;
  state: string;
  attempts: number;
  receipt: Record<string, unknown> | null;
  note: string | null;
  txId: string | null;
  createdAt: string;
  finalAt: string | null;
};

/** What is null is as the settings say. */
export type LimitsIn = {
  requestsPerSecond?: number | null;
  burstMax?: number | null;
  inFlightMax?: number | null;
};

export type LogLineShown = {
  cursor: string;
  at: string;
  level: string | null;
  step: string | null;
  stepType: string | null;
  attempt: number | null;
  text: unknown;
  fields: unknown;
};

export type LogLinesShown = {
  txId: string;
  lines: LogLineShown[];
  nextCursor: string | null;
};

export type MappingInUse = {
  name: string;
  version: string;
  state: "draft" | "committed";
  comment: string | null;
  createdAt: string;
  inUse: boolean;
  /** Those in use that name it: a new version. */
  pipelines: RepublishedPipeline[];
};

export type MappingListed = {
  name: string;
  versionInUse: string | null;
  versions: number;
  drafts: number;
  updatedAt: string;
};

export type MappingShown = {
  name: string;
  /** The newest first. */
  versions: MappingVersion[];
};

export type MappingUseIn = {
  /** Why; it is kept in the audit table. */
  reason?: string;
};

export type MappingVersion = {
  name: string;
  version: string;
  state: "draft" | "committed";
  comment: string | null;
  createdAt: string;
  inUse: boolean;
};

export type MappingVersionShown = {
  name: string;
  version: string;
  state: "draft" | "committed";
  comment: string | null;
  createdAt: string;
  inUse: boolean;
  definition: Record<string, unknown>;
};

export type MappingsShown = {
  /** Send as `cursor`; null at the end. */
  nextCursor: string | null;
  /** Whether there is another page. */
  hasMore: boolean;
  /** The most that this page could have. */
  limit: number;
  mappings: MappingListed[];
};

export type Misfit = {
  txId: string;
  faults: string[];
};

export type Mistake = {
  /** Where: a JSON pointer. */
  pointer: string;
  detail: string;
};

/** Beside these, whatever a node says of itself. */
export type NodeShown = {
  group: string;
  name: string;
};

export type NodesShown = {
  /** Send as `cursor`; null at the end. */
  nextCursor: string | null;
  /** Whether there is another page. */
  hasMore: boolean;
  /** The most that this page could have. */
  limit: number;
  nodes: NodeShown[];
};

export type OriginalSummary = {
  metadata: SummaryMetadata;
  progressReport: Record<string, unknown> | null;
  data: Record<string, unknown> | null;
};

export type OwnerLimitsShown = {
  owner: string;
  requestsPerSecond: number | null;
  burstMax: number | null;
  inFlightMax: number | null;
};

export type OwnerSecretMade = {
  owner: string;
  /** The new one: shown now and never again. */
  secret: string;
};

export type OwnerSecretsShown = {
  owner: string;
  /** The newest first. */
  secrets: SecretTimes[];
};

export type Page = {
  /** Send as `cursor`; null at the end. */
  nextCursor: string | null;
  /** Whether there is another page. */
  hasMore: boolean;
  /** The most that this page could have. */
  limit: number;
  transactions: Transaction[];
};

export type PipelineInUse = {
  name: string;
  versions: PipelineVersionInfo[];
  /** As a file has it (docs/pipelines.md). */
  definition: Record<string, unknown>;
};

export type PipelineShown = {
  name: string;
  versionInUse: string | null;
  disabled: boolean;
  versions: number;
  drafts: number;
  updatedAt: string;
};

export type PipelineStopped = {
  name: string;
  disabled: boolean;
};

export type PipelineVersion = {
  name: string;
  version: string;
  contentHash: string;
  state: "draft" | "committed";
  comment: string | null;
  createdAt: string;
  committedAt: string | null;
  inUse: boolean;
};

export type PipelineVersionInfo = {
  name: string;
  version: string;
  contentHash: string;
  state: "draft" | "committed";
  comment: string | null;
  createdAt: string;
  committedAt: string | null;
  inUse: boolean;
};

export type PipelineVersionShown = {
  name: string;
  version: string;
  contentHash: string;
  state: "draft" | "committed";
  comment: string | null;
  createdAt: string;
  committedAt: string | null;
  inUse: boolean;
  definition: Record<string, unknown>;
};

export type PipelinesShown = {
  /** Send as `cursor`; null at the end. */
  nextCursor: string | null;
  /** Whether there is another page. */
  hasMore: boolean;
  /** The most that this page could have. */
  limit: number;
  pipelines: PipelineShown[];
};

export type PreviewIn = {
  action: "cancel" | "wake" | "retry";
  where: WhereIn;
};

export type PreviewOut = {
  action: string;
  where: Record<string, unknown>;
  /** Up to 1000, which one request acts on. */
  count: number;
  /** Names exactly this set. */
  selection: string;
  /** There are more than one request acts on. */
  more: boolean;
  sample: Previewed[];
};

export type Previewed = {
  txId: string;
  status: "queued" | "running" | "sleeping" | "in-doubt" | "success" | "failed" | "aborted" | "cancelled" | "expired" | "internal-error";
  pipeline: string;
  owner: string;
};

/** RFC 9457. */
export type Problem = {
  type: string;
  title: string;
  status: number;
  detail: string;
  /** The same request can succeed later. */
  retryable: boolean;
  requestId?: string | null;
  errors?: Mistake[] | null;
  errorId?: string | null;
};

export type QueuesShown = {
  /** By list. */
  transactions: Record<string, number>;
  /** By node group. */
  bells: Record<string, number>;
};

export type Readiness = {
  status: string;
  postgresql: string;
  redis: string;
};

export type ReasonIn = {
  /** Kept in the audit table. */
  reason: string;
};

export type Refusal = {
  txId: string;
  why: string;
};

export type RejectIn = {
  /** Why; it is kept. */
  note: string;
};

export type ReplayIn = {
  from: string;
  to: string;
};

export type ReplayShown = {
  txId: string;
  /** The journal leads to what the system has. */
  fits: boolean;
  faults: string[];
  status: string | null;
  version: number | null;
  /** Its journal is older than it is kept. */
  dropped: boolean;
  erased: boolean;
  state: Record<string, unknown> | null;
};

export type RepublishedPipeline = {
  pipeline: string;
  version: string;
  /** It is in use once another person has approved this. */
  approvalId: number | null;
};

export type ResolveBatchIn = {
  /** Kept in the audit table. */
  reason: string;
  state: "COMMITTED" | "INVALID";
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

export type RetentionRuleIn = {
  /** After the end. */
  days: number;
  /** Kept in the audit table. */
  reason: string;
  /** Act alone although the policy wants another person; an alert stays. */
  breakGlass?: boolean;
};

export type RetentionRuleRemoved = {
  kind: "owner" | "pipeline";
  name: string;
  removed: boolean;
};

export type RetentionRuleShown = {
  kind: "owner" | "pipeline";
  name: string;
  days: number;
};

export type RetentionRulesShown = {
  /** Send as `cursor`; null at the end. */
  nextCursor: string | null;
  /** Whether there is another page. */
  hasMore: boolean;
  /** The most that this page could have. */
  limit: number;
  rules: RetentionRuleShown[];
};

export type RetryIn = {
  /** Kept in the audit table. */
  reason: string;
};

export type RevokeIn = {
  reason?: string | null;
};

export type RingKeyShown = {
  /** Its id; (plain): rows from before the key ring. */
  key: string;
  active: boolean;
  /** Whether this process has it in its ring. */
  known: boolean;
  /** How many rows are sealed under it. */
  rows: number;
};

/** What an operator may do; each includes what the ones before it may. */
export type Role = "viewer" | "operator" | "approver" | "admin";

export type RotateIn = {
  /** The old one signs, too. */
  overlapSeconds?: number | null;
};

export type RotateOwnerIn = {
  /** The old one signs, too. */
  overlapSeconds?: number | null;
  /** For an admin: of whom. */
  owner?: string | null;
};

export type RunState = "running" | "done" | "failed";

export type SecretGone = {
  name: string;
  removed: boolean;
};

export type SecretIn = {
  /** It is sealed, and never shown again. */
  value: string;
  /** Only a new value for one that there is; else 404. */
  mustExist?: boolean;
};

export type SecretRotated = {
  id: string;
  /** The new one: shown now and never again. */
  secret: string;
};

export type SecretShown = {
  name: string;
  /** The key of the ring that it is sealed under. */
  key: string;
  changedAt: string;
};

export type SecretStored = {
  name: string;
  /** false: it had a value, which is replaced. */
  new: boolean;
};

export type SecretTimes = {
  createdAt: string;
  /** Until then it signs. */
  retiredAt: string | null;
};

export type SecretsShown = {
  /** Send as `cursor`; null at the end. */
  nextCursor: string | null;
  /** Whether there is another page. */
  hasMore: boolean;
  /** The most that this page could have. */
  limit: number;
  secrets: SecretShown[];
};

export type SegmentShown = {
  value: number;
  /** Of PostgreSQL; larger than a float can hold. */
  xact: string;
  changedAt: string | null;
};

export type SeriesShown = {
  resolution: "fine" | "middle" | "coarse";
  slotSeconds: number;
  keptSeconds: number;
  slots: SlotShown[];
};

export type ServiceIn = {
  service: string;
  /** One of the kinds of this installation. */
  kind: string;
  /** Base address of the ledger. */
  url: string;
  /** Name of the secret that its requests carry. */
  secret?: string | null;
};

export type ServiceShown = {
  service: string;
  kind: string;
  url: string;
  /** Name of the secret its requests carry. */
  secret: string | null;
};

export type ServicesShown = {
  /** Send as `cursor`; null at the end. */
  nextCursor: string | null;
  /** Whether there is another page. */
  hasMore: boolean;
  /** The most that this page could have. */
  limit: number;
  services: ServiceShown[];
  /** Kinds of ledgers that are known here. */
  kinds: string[];
};

export type SlotShown = {
  start: number;
  counts: Record<string, unknown>[];
  gauges: Record<string, number>;
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

/** The transaction as the engine sees it. */
export type StateShown = {
  txId: string;
  source: "live" | "archive";
  status: string;
  version: number;
  fence: number;
  begun: boolean;
  group: string | null;
  stepType: string | null;
  place: string | null;
  node: string | null;
  wakeTimeMs: number | null;
  wakeSwitch: string | null;
  switches: Record<string, string>;
  cancel: string | null;
  problem: string | null;
  state: Record<string, unknown>;
};

/** Of a node of an earlier release only the name is known. */
export type StepTypeShown = {
  name: string;
  /** Whose live nodes offer it. */
  groups: string[];
  /** How many live nodes offer it. */
  nodes: number;
  description?: string;
  /** JSON Schema of its params. */
  parameters?: Record<string, unknown>;
  /** A step to begin with. */
  defaultDefinition?: Record<string, unknown>;
  /** JSON Schema of its input, if its function is typed. */
  input?: Record<string, unknown> | null;
  onCrash?: string | null;
  transactional?: boolean | null;
  vector?: boolean | null;
};

export type StepTypesShown = {
  /** Send as `cursor`; null at the end. */
  nextCursor: string | null;
  /** Whether there is another page. */
  hasMore: boolean;
  /** The most that this page could have. */
  limit: number;
  stepTypes: StepTypeShown[];
};

export type StoredBatch = {
  service: string;
  batchId: string;
  /** In the line of the service, which owners share; for operators. */
  position: number | null;
  state: string;
};

export type SubjectIn = {
  /** A JSON pointer. */
  pointer: string;
  /** A number as JSON writes it. */
  value: string;
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

export type TestIn = {
  /** Only these; else all of them. */
  cases?: string[] | null;
  /** Kept in the audit table. */
  reason?: string;
};

export type TestSent = {
  /** Its id, for getDelivery. */
  delivery: string;
};

export type TimeoutShown = {
  txId: string;
  pipeline: string;
  owner: string;
  state: string;
  expiresAt: string;
  expiringAt: string | null;
};

export type TimeoutsShown = {
  lagSeconds: number;
  behind: boolean;
  segment: SegmentShown;
  watched: number;
  due: number;
  next: TimeoutShown[];
};

export type Transaction = {
  txId: string;
  status: "queued" | "running" | "sleeping" | "in-doubt" | "success" | "failed" | "aborted" | "cancelled" | "expired" | "internal-error";
  owner: string;
  externalId: string | null;
  pipeline: string;
  version: string;
  input: Record<string, unknown>;
  /** What it returned, once it has ended. */
  output: Record<string, unknown> | null;
  /** What a step reported last. */
  progress: Record<string, unknown> | null;
  note: string | null;
  metadata: Record<string, unknown> | null;
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
  input: Record<string, unknown>;
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

export type TransferShown = {
  /** Its place in the request, from 0. */
  index: number;
  externalId?: string | null;
  txId?: string | null;
  status: ("queued" | "running" | "sleeping" | "in-doubt" | "success" | "failed" | "aborted" | "cancelled" | "expired" | "internal-error") | ("refused" | "duplicate" | "gone");
  note?: string | null;
  completedAt?: string | null;
  /** Why it was refused. */
  problem?: string | null;
  /** The transaction that it was accepted as before. */
  duplicateOf?: string | null;
};

export type UnmaskedApproval = {
  id: number;
  params: Record<string, unknown>;
};

export type UnmaskedTransaction = {
  txId: string;
  status: "queued" | "running" | "sleeping" | "in-doubt" | "success" | "failed" | "aborted" | "cancelled" | "expired" | "internal-error";
  owner: string;
  externalId: string | null;
  pipeline: string;
  version: string;
  input: Record<string, unknown>;
  /** What it returned, once it has ended. */
  output: Record<string, unknown> | null;
  /** What a step reported last. */
  progress: Record<string, unknown> | null;
  note: string | null;
  metadata: Record<string, unknown> | null;
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
  errors: unknown;
  approvals: UnmaskedApproval[];
};

export type UseIn = {
  /** Why; kept in the audit table. */
  reason?: string;
  /** Act alone although the policy wants another person; an alert stays. */
  breakGlass?: boolean;
};

export type VersionsCompared = {
  /** Unified, of the two as YAML; empty: no difference. */
  diff: string;
};

export type ViolationShown = {
  txId: string;
  what: string;
};

export type WebhookEvent = {
  type: "transaction.completed" | "transaction.progress";
  timestamp: string;
  data: WebhookTransaction;
};

export type WebhookTransaction = {
  txId: string;
  externalId: string | null;
  pipeline: string;
  status: "queued" | "running" | "sleeping" | "in-doubt" | "success" | "failed" | "aborted" | "cancelled" | "expired" | "internal-error";
  sequence: number;
  output: Record<string, unknown> | null;
  progress: Record<string, unknown> | null;
  note: string | null;
  metadata: Record<string, unknown> | null;
  createdAt: string;
  completedAt: string | null;
};

/** Which transactions; at least one filter, because all of them are never meant. */
export type WhereIn = {
  status?: ("queued" | "running" | "sleeping" | "in-doubt" | "success" | "failed" | "aborted" | "cancelled" | "expired" | "internal-error") | null;
  pipeline?: string | null;
  owner?: string | null;
  /** The node group it is queued for. */
  group?: string | null;
  olderThanSeconds?: number | null;
  newerThanSeconds?: number | null;
  /** Search attributes: name[eq|gt|gte|lt|lte|prefix] and value, all of them. */
  attributes?: Record<string, unknown> | null;
};

export type WhyShown = {
  txId: string;
  status: string;
  /** One word for programs. */
  cause: string;
  /** For people. */
  answer: string;
  /** When it moves by itself. */
  movesAt: string | null;
  /** What a person can do. */
  hints: string[];
};

export type Woken = {
  woken: boolean;
};

export interface Operations {
  /** Act On Transactions */
  actOnTransactions: {
    method: "POST";
    path: "/v1/bulk-actions";
    body: BulkActionIn;
    replies: {
      200: BulkActionOut;
      409: Problem;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Add Service */
  addService: {
    method: "POST";
    path: "/v1/services";
    body: ServiceIn;
    replies: {
      201: ServiceShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Add */
  addWebhookEndpoint: {
    method: "POST";
    path: "/v1/webhook-endpoints";
    body: EndpointIn;
    replies: {
      201: EndpointMade;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Apply Mapping */
  applyMapping: {
    method: "POST";
    path: "/v1/mappings";
    body: DefinitionIn;
    replies: {
      201: AppliedMapping;
      200: AppliedMapping;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Apply Pipeline */
  applyPipeline: {
    method: "POST";
    path: "/v1/pipelines";
    body: DefinitionIn;
    replies: {
      201: AppliedVersion;
      200: AppliedVersion;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Approve */
  approveRequest: {
    method: "POST";
    path: "/v1/approvals/{number}/approve";
    pathParameters: {
      number: number;
    };
    body: ApproveIn;
    replies: {
      200: ApprovalShown;
      409: Problem;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Cancel Bulk Transfer */
  cancelBulkTransfer: {
    method: "POST";
    path: "/v1/bulk-transfers/{txId}/cancel";
    pathParameters: {
      txId: string;
    };
    body: BulkCancelIn | null;
    replies: {
      202: BulkTransferCancelled;
      200: BulkTransferCancelled;
      409: Problem;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Cancel */
  cancelTransaction: {
    method: "POST";
    path: "/v1/transactions/{txId}/cancel";
    pathParameters: {
      txId: string;
    };
    body: CancelIn | null;
    replies: {
      202: Transaction;
      200: Transaction;
      409: Problem;
      412: Problem;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Change */
  changeWebhookEndpoint: {
    method: "PATCH";
    path: "/v1/webhook-endpoints/{id}";
    pathParameters: {
      id: string;
    };
    body: EndpointChange;
    replies: {
      200: EndpointShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Healthcheck */
  checkHealthOriginal: {
    method: "GET";
    path: "/datp/1.0/healthcheck";
    replies: {
      200: HealthCheck;
      400: Problem;
      414: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Check Pipeline */
  checkPipeline: {
    method: "POST";
    path: "/v1/pipelines/check";
    body: DefinitionIn;
    replies: {
      200: CheckedDefinition;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Clone Pipeline */
  clonePipeline: {
    method: "POST";
    path: "/v1/pipelines/{name}/clone";
    pathParameters: {
      name: string;
    };
    body: CloneIn;
    replies: {
      201: AppliedVersion;
      200: AppliedVersion;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Close Alert */
  closeAlert: {
    method: "POST";
    path: "/v1/alerts/{alertId}/close";
    pathParameters: {
      alertId: number;
    };
    body: CloseIn;
    replies: {
      200: AlertClosed;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Commit Mapping */
  commitMapping: {
    method: "POST";
    path: "/v1/mappings/{name}/versions/{version}/commit";
    pathParameters: {
      name: string;
      version: string;
    };
    body: CommitIn;
    replies: {
      200: MappingVersion;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Commit Pipeline */
  commitPipeline: {
    method: "POST";
    path: "/v1/pipelines/{name}/versions/{version}/commit";
    pathParameters: {
      name: string;
      version: string;
    };
    body: CommitIn;
    replies: {
      200: PipelineVersion;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Compare Pipeline */
  comparePipeline: {
    method: "GET";
    path: "/v1/pipelines/{name}/diff";
    pathParameters: {
      name: string;
    };
    queryParameters: {
      from: string;
      to: string;
    };
    replies: {
      200: VersionsCompared;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Create Key */
  createKey: {
    method: "POST";
    path: "/v1/keys";
    body: KeyIn;
    replies: {
      201: KeyMade;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Delete Draft */
  deleteDraft: {
    method: "DELETE";
    path: "/v1/pipelines/{name}/versions/{version}";
    pathParameters: {
      name: string;
      version: string;
    };
    replies: {
      200: PipelineVersion;
      409: Problem;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Delete Secret */
  deleteSecret: {
    method: "DELETE";
    path: "/v1/secrets/{name}";
    pathParameters: {
      name: string;
    };
    replies: {
      200: SecretGone;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Disable */
  disablePipeline: {
    method: "POST";
    path: "/v1/pipelines/{name}/disable";
    pathParameters: {
      name: string;
    };
    replies: {
      200: PipelineStopped;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Explain Transaction */
  explainTransaction: {
    method: "GET";
    path: "/v1/transactions/{txId}/why";
    pathParameters: {
      txId: string;
    };
    replies: {
      200: WhyShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Export Pipeline */
  exportPipeline: {
    method: "GET";
    path: "/v1/pipelines/{name}/versions/{version}/export";
    pathParameters: {
      name: string;
      version: string;
    };
    replies: {
      200: ExportedPipeline;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Approval */
  getApproval: {
    method: "GET";
    path: "/v1/approvals/{number}";
    pathParameters: {
      number: number;
    };
    replies: {
      200: ApprovalShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Get Audit */
  getAudit: {
    method: "GET";
    path: "/v1/audits/{number}";
    pathParameters: {
      number: number;
    };
    replies: {
      200: AuditShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Status */
  getBatch: {
    method: "GET";
    path: "/v1/batches/{service}/{batchId}";
    pathParameters: {
      service: string;
      batchId: string;
    };
    replies: {
      200: LedgerBatch;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Bulk Transfer */
  getBulkTransfer: {
    method: "GET";
    path: "/v1/bulk-transfers/{txId}";
    pathParameters: {
      txId: string;
    };
    replies: {
      200: BulkTransferShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Show */
  getDelivery: {
    method: "GET";
    path: "/v1/webhooks/{id}";
    pathParameters: {
      id: string;
    };
    replies: {
      200: DeliveryWithAttempts;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Doctor */
  getDiagnosis: {
    method: "GET";
    path: "/v1/doctor";
    replies: {
      200: DiagnosisShown;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Get Erasure */
  getErasure: {
    method: "GET";
    path: "/v1/erasures/{number}";
    pathParameters: {
      number: number;
    };
    replies: {
      200: ErasureShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Group */
  getGroup: {
    method: "GET";
    path: "/v1/groups/{name}";
    pathParameters: {
      name: string;
    };
    replies: {
      200: GroupShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Healthz */
  getHealth: {
    method: "GET";
    path: "/healthz";
    replies: {
      200: Health;
      400: Problem;
      414: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** In Flight */
  getInFlight: {
    method: "GET";
    path: "/v1/in-flight";
    queryParameters: {
      limit?: number;
    };
    replies: {
      200: InFlightNowShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Input Schema */
  getInputSchema: {
    method: "GET";
    path: "/v1/pipelines/{name}/schema";
    pathParameters: {
      name: string;
    };
    replies: {
      200: InputSchemaShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Key Ring */
  getKeyRing: {
    method: "GET";
    path: "/v1/key-ring";
    replies: {
      200: KeyRingShown;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Show Mapping */
  getMapping: {
    method: "GET";
    path: "/v1/mappings/{name}";
    pathParameters: {
      name: string;
    };
    replies: {
      200: MappingShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Show Mapping Version */
  getMappingVersion: {
    method: "GET";
    path: "/v1/mappings/{name}/versions/{version}";
    pathParameters: {
      name: string;
      version: string;
    };
    replies: {
      200: MappingVersionShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Series */
  getMetrics: {
    method: "GET";
    path: "/v1/metrics";
    queryParameters: {
      resolution?: "fine" | "middle" | "coarse";
      by?: string;
    };
    replies: {
      200: SeriesShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Status */
  getOriginal: {
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
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Status By External Id */
  getOriginalByExternalId: {
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
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Get Owner Limits */
  getOwnerLimits: {
    method: "GET";
    path: "/v1/owners/{owner}/limits";
    pathParameters: {
      owner: string;
    };
    replies: {
      200: OwnerLimitsShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Pipeline */
  getPipeline: {
    method: "GET";
    path: "/v1/pipelines/{name}";
    pathParameters: {
      name: string;
    };
    replies: {
      200: PipelineInUse;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Get Pipeline Version */
  getPipelineVersion: {
    method: "GET";
    path: "/v1/pipelines/{name}/versions/{version}";
    pathParameters: {
      name: string;
      version: string;
    };
    replies: {
      200: PipelineVersionShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Queues */
  getQueues: {
    method: "GET";
    path: "/v1/queues";
    replies: {
      200: QueuesShown;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Readyz */
  getReadiness: {
    method: "GET";
    path: "/readyz";
    replies: {
      200: Readiness;
      400: Problem;
      414: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Step Type */
  getStepType: {
    method: "GET";
    path: "/v1/step-types/{name}";
    pathParameters: {
      name: string;
    };
    replies: {
      200: StepTypeShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Timeouts */
  getTimeouts: {
    method: "GET";
    path: "/v1/timeouts";
    queryParameters: {
      limit?: number;
    };
    replies: {
      200: TimeoutsShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Status */
  getTransaction: {
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
      304: undefined;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Deltas */
  getTransactionJournal: {
    method: "GET";
    path: "/v1/transactions/{txId}/deltas";
    pathParameters: {
      txId: string;
    };
    replies: {
      200: JournalShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Logs */
  getTransactionLogs: {
    method: "GET";
    path: "/v1/transactions/{txId}/logs";
    pathParameters: {
      txId: string;
    };
    queryParameters: {
      limit?: number;
      cursor?: string | null;
    };
    replies: {
      200: LogLinesShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** State */
  getTransactionState: {
    method: "GET";
    path: "/v1/transactions/{txId}/state";
    pathParameters: {
      txId: string;
    };
    replies: {
      200: StateShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Show */
  getWebhookEndpoint: {
    method: "GET";
    path: "/v1/webhook-endpoints/{id}";
    pathParameters: {
      id: string;
    };
    replies: {
      200: EndpointShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Show Secrets */
  getWebhookSecret: {
    method: "GET";
    path: "/v1/webhook-secret";
    queryParameters: {
      owner?: string | null;
    };
    replies: {
      200: OwnerSecretsShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Import Pipeline */
  importPipeline: {
    method: "POST";
    path: "/v1/pipelines/import";
    body: Record<string, unknown>;
    replies: {
      201: AppliedVersion;
      200: AppliedVersion;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Alerts */
  listAlerts: {
    method: "GET";
    path: "/v1/alerts";
    queryParameters: {
      limit?: number;
      cursor?: string | null;
    };
    replies: {
      200: AlertsShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Approvals */
  listApprovals: {
    method: "GET";
    path: "/v1/approvals";
    queryParameters: {
      state?: ApprovalState | null;
      limit?: number;
      cursor?: string | null;
    };
    replies: {
      200: ApprovalsShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Actions */
  listAuditActions: {
    method: "GET";
    path: "/v1/audit/actions";
    queryParameters: {
      subject?: string | null;
      keyId?: string | null;
      action?: string | null;
      limit?: number;
      cursor?: string | null;
    };
    replies: {
      200: AuditActionsShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** List Audits */
  listAudits: {
    method: "GET";
    path: "/v1/audits";
    queryParameters: {
      limit?: number;
      cursor?: string | null;
    };
    replies: {
      200: AuditsShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Receipts */
  listBatchReceipts: {
    method: "GET";
    path: "/v1/batches/{service}/{batchId}/receipts";
    pathParameters: {
      service: string;
      batchId: string;
    };
    queryParameters: {
      limit?: number;
      cursor?: string | null;
    };
    replies: {
      200: BatchReceipts;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Find */
  listBatches: {
    method: "GET";
    path: "/v1/batches";
    queryParameters: {
      service?: string | null;
      state?: BatchState | null;
      withFinal?: boolean;
      limit?: number;
      cursor?: string | null;
    };
    replies: {
      200: Batches;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Claims */
  listClaims: {
    method: "GET";
    path: "/v1/claims";
    queryParameters: {
      service?: string | null;
      limit?: number;
      cursor?: string | null;
    };
    replies: {
      200: ClaimsShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Find */
  listDeliveries: {
    method: "GET";
    path: "/v1/webhooks";
    queryParameters: {
      state?: ("pending" | "delivered" | "dead" | "cancelled") | null;
      txId?: string | null;
      limit?: number;
      cursor?: string | null;
    };
    replies: {
      200: DeliveriesShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Deliveries */
  listEndpointDeliveries: {
    method: "GET";
    path: "/v1/webhook-endpoints/{id}/deliveries";
    pathParameters: {
      id: string;
    };
    queryParameters: {
      limit?: number;
      cursor?: string | null;
    };
    replies: {
      200: DeliveriesShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** List Erasures */
  listErasures: {
    method: "GET";
    path: "/v1/erasures";
    queryParameters: {
      limit?: number;
      cursor?: string | null;
    };
    replies: {
      200: ErasuresShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Events */
  listEvents: {
    method: "GET";
    path: "/v1/events";
    queryParameters: {
      after?: string | null;
      limit?: number;
      wait?: number;
      type?: string | null;
      owner?: string | null;
      format?: "cloudevents" | null;
    };
    replies: {
      200: FeedPageShown;
      410: Problem;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Groups */
  listGroups: {
    method: "GET";
    path: "/v1/groups";
    queryParameters: {
      limit?: number;
      cursor?: string | null;
    };
    replies: {
      200: GroupsShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** In Doubt */
  listInDoubt: {
    method: "GET";
    path: "/v1/in-doubt";
    queryParameters: {
      limit?: number;
      cursor?: string | null;
    };
    replies: {
      200: DoubtsShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Keys */
  listKeys: {
    method: "GET";
    path: "/v1/keys";
    queryParameters: {
      owner?: string | null;
      limit?: number;
      cursor?: string | null;
    };
    replies: {
      200: KeysShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** List Mappings */
  listMappings: {
    method: "GET";
    path: "/v1/mappings";
    queryParameters: {
      limit?: number;
      cursor?: string | null;
    };
    replies: {
      200: MappingsShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Nodes */
  listNodes: {
    method: "GET";
    path: "/v1/nodes";
    queryParameters: {
      limit?: number;
      cursor?: string | null;
    };
    replies: {
      200: NodesShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Pipelines */
  listPipelines: {
    method: "GET";
    path: "/v1/pipelines";
    queryParameters: {
      limit?: number;
      cursor?: string | null;
    };
    replies: {
      200: PipelinesShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Rules */
  listRetentionRules: {
    method: "GET";
    path: "/v1/retention-rules";
    queryParameters: {
      limit?: number;
      cursor?: string | null;
    };
    replies: {
      200: RetentionRulesShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Secrets */
  listSecrets: {
    method: "GET";
    path: "/v1/secrets";
    queryParameters: {
      limit?: number;
      cursor?: string | null;
    };
    replies: {
      200: SecretsShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Services List */
  listServices: {
    method: "GET";
    path: "/v1/services";
    queryParameters: {
      limit?: number;
      cursor?: string | null;
    };
    replies: {
      200: ServicesShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Step Types */
  listStepTypes: {
    method: "GET";
    path: "/v1/step-types";
    queryParameters: {
      limit?: number;
      cursor?: string | null;
    };
    replies: {
      200: StepTypesShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Events */
  listTransactionEvents: {
    method: "GET";
    path: "/v1/transactions/{txId}/events";
    pathParameters: {
      txId: string;
    };
    queryParameters: {
      after?: number;
      limit?: number;
      cursor?: string | null;
    };
    replies: {
      200: Events;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Find */
  listTransactions: {
    method: "GET";
    path: "/v1/transactions";
    queryParameters: {
      externalId?: string | null;
      status?: string | null;
      pipeline?: string | null;
      owner?: string | null;
      "createdAt[gte]"?: string | null;
      "createdAt[lt]"?: string | null;
      "completedAt[gte]"?: string | null;
      "completedAt[lt]"?: string | null;
      q?: string | null;
      order?: string;
      limit?: number;
      cursor?: string | null;
    };
    replies: {
      200: Page;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Find */
  listWebhookEndpoints: {
    method: "GET";
    path: "/v1/webhook-endpoints";
    queryParameters: {
      owner?: string | null;
      limit?: number;
      cursor?: string | null;
    };
    replies: {
      200: EndpointsShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Park */
  parkBatch: {
    method: "POST";
    path: "/v1/batches/{service}/{batchId}/park";
    pathParameters: {
      service: string;
      batchId: string;
    };
    body: ReasonIn;
    replies: {
      200: BatchDecided;
      409: Problem;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Healthcheck */
  pingOriginal: {
    method: "GET";
    path: "/datp/1.0/ping";
    replies: {
      200: HealthCheck;
      400: Problem;
      414: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Preview Bulk Action */
  previewBulkAction: {
    method: "POST";
    path: "/v1/bulk-actions/preview";
    body: PreviewIn;
    replies: {
      200: PreviewOut;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Preview Erasure */
  previewErasure: {
    method: "POST";
    path: "/v1/erasures/preview";
    body: ChosenIn;
    replies: {
      200: ErasureCounted;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Redeliver */
  redeliverWebhook: {
    method: "POST";
    path: "/v1/webhooks/{id}/redeliver";
    pathParameters: {
      id: string;
    };
    replies: {
      202: DeliveryWithAttempts;
      409: Problem;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Reject */
  rejectRequest: {
    method: "POST";
    path: "/v1/approvals/{number}/reject";
    pathParameters: {
      number: number;
    };
    body: RejectIn;
    replies: {
      200: ApprovalShown;
      409: Problem;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Remove Rule */
  removeRetentionRule: {
    method: "DELETE";
    path: "/v1/retention-rules/{kind}/{name}";
    pathParameters: {
      kind: "owner" | "pipeline";
      name: string;
    };
    queryParameters: {
      reason: string;
      breakGlass?: boolean;
    };
    replies: {
      200: RetentionRuleRemoved;
      202: ApprovalAsked;
      409: Problem;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Delete */
  removeWebhookEndpoint: {
    method: "DELETE";
    path: "/v1/webhook-endpoints/{id}";
    pathParameters: {
      id: string;
    };
    replies: {
      204: undefined;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Replay Transaction */
  replayTransaction: {
    method: "GET";
    path: "/v1/transactions/{txId}/replay";
    pathParameters: {
      txId: string;
    };
    replies: {
      200: ReplayShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Replay */
  replayWebhookEvents: {
    method: "POST";
    path: "/v1/webhook-endpoints/{id}/replay";
    pathParameters: {
      id: string;
    };
    body: ReplayIn;
    replies: {
      202: EndpointShown;
      409: Problem;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Resolve */
  resolveBatch: {
    method: "POST";
    path: "/v1/batches/{service}/{batchId}/resolve";
    pathParameters: {
      service: string;
      batchId: string;
    };
    body: ResolveBatchIn;
    replies: {
      200: BatchDecided;
      409: Problem;
      202: ApprovalAsked;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Resolve */
  resolveTransaction: {
    method: "POST";
    path: "/v1/transactions/{txId}/resolve";
    pathParameters: {
      txId: string;
    };
    body: ResolveIn;
    replies: {
      202: Transaction | ApprovalAsked;
      200: Transaction;
      409: Problem;
      412: Problem;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Resubmit */
  resubmitBatch: {
    method: "POST";
    path: "/v1/batches/{service}/{batchId}/resubmit";
    pathParameters: {
      service: string;
      batchId: string;
    };
    body: ReasonIn;
    replies: {
      200: BatchDecided;
      409: Problem;
      202: ApprovalAsked;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Resume */
  resumeBatch: {
    method: "POST";
    path: "/v1/batches/{service}/{batchId}/resume";
    pathParameters: {
      service: string;
      batchId: string;
    };
    body: ReasonIn;
    replies: {
      200: BatchDecided;
      409: Problem;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Retry */
  retryTransaction: {
    method: "POST";
    path: "/v1/transactions/{txId}/retry";
    pathParameters: {
      txId: string;
    };
    body: RetryIn;
    replies: {
      202: Transaction | ApprovalAsked;
      200: Transaction;
      409: Problem;
      412: Problem;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Revoke Key */
  revokeKey: {
    method: "POST";
    path: "/v1/keys/{keyId}/revoke";
    pathParameters: {
      keyId: string;
    };
    body: RevokeIn | null;
    replies: {
      200: KeyShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Rotate Secret */
  rotateOwnerSecret: {
    method: "POST";
    path: "/v1/webhook-secret/rotate";
    body: RotateOwnerIn | null;
    replies: {
      200: OwnerSecretMade;
      409: Problem;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Rotate */
  rotateWebhookSecret: {
    method: "POST";
    path: "/v1/webhook-endpoints/{id}/rotate-secret";
    pathParameters: {
      id: string;
    };
    body: RotateIn | null;
    replies: {
      200: SecretRotated;
      409: Problem;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Scraped */
  scrapeMetrics: {
    method: "GET";
    path: "/metrics";
    replies: {
      200: undefined;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Set Group */
  setGroup: {
    method: "PATCH";
    path: "/v1/groups/{name}";
    pathParameters: {
      name: string;
    };
    body: GroupIn;
    replies: {
      200: GroupShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Set Owner Limits */
  setOwnerLimits: {
    method: "PUT";
    path: "/v1/owners/{owner}/limits";
    pathParameters: {
      owner: string;
    };
    body: LimitsIn;
    replies: {
      200: OwnerLimitsShown;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Set Rule */
  setRetentionRule: {
    method: "PUT";
    path: "/v1/retention-rules/{kind}/{name}";
    pathParameters: {
      kind: "owner" | "pipeline";
      name: string;
    };
    body: RetentionRuleIn;
    replies: {
      200: RetentionRuleShown;
      202: ApprovalAsked;
      409: Problem;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Set Secret */
  setSecret: {
    method: "PUT";
    path: "/v1/secrets/{name}";
    pathParameters: {
      name: string;
    };
    body: SecretIn;
    replies: {
      200: SecretStored;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Set Switch */
  setSwitch: {
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
      412: Problem;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Start Audit */
  startAudit: {
    method: "POST";
    path: "/v1/audits";
    body: AuditIn;
    replies: {
      202: AuditShown;
      409: Problem;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Start Erasure */
  startErasure: {
    method: "POST";
    path: "/v1/erasures";
    body: ErasureIn;
    replies: {
      202: ErasureShown | ApprovalAsked;
      409: Problem;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Start */
  startOriginal: {
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
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Submit */
  submitBatch: {
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
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Submit Bulk Transfer */
  submitBulkTransfer: {
    method: "POST";
    path: "/v1/bulk-transfers";
    body: BulkTransferIn;
    replies: {
      202: BulkTransferAccepted;
      200: BulkTransferAccepted;
      409: Problem;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Submit */
  submitTransaction: {
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
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Submit Bulk */
  submitTransactions: {
    method: "POST";
    path: "/v1/transactions/bulk";
    body: BulkIn;
    replies: {
      202: BulkOut;
      200: BulkOut;
      207: BulkOut;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Run Cases */
  testPipeline: {
    method: "POST";
    path: "/v1/pipelines/{name}/versions/{version}/test";
    pathParameters: {
      name: string;
      version: string;
    };
    body: TestIn | null;
    replies: {
      200: CasesShown;
      409: Problem;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Test */
  testWebhookEndpoint: {
    method: "POST";
    path: "/v1/webhook-endpoints/{id}/test";
    pathParameters: {
      id: string;
    };
    replies: {
      202: TestSent;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Unmask */
  unmaskTransaction: {
    method: "POST";
    path: "/v1/transactions/{txId}/unmask";
    pathParameters: {
      txId: string;
    };
    body: RetryIn;
    replies: {
      200: UnmaskedTransaction;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Use Mapping */
  useMapping: {
    method: "POST";
    path: "/v1/mappings/{name}/versions/{version}/use";
    pathParameters: {
      name: string;
      version: string;
    };
    body: MappingUseIn | null;
    replies: {
      200: MappingInUse;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Use */
  usePipelineVersion: {
    method: "POST";
    path: "/v1/pipelines/{name}/versions/{version}/use";
    pathParameters: {
      name: string;
      version: string;
    };
    body: UseIn | null;
    replies: {
      200: PipelineVersionInfo;
      202: ApprovalAsked;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      408: Problem;
      413: Problem;
      414: Problem;
      415: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
  /** Wake */
  wakeTransaction: {
    method: "POST";
    path: "/v1/transactions/{txId}/wake";
    pathParameters: {
      txId: string;
    };
    replies: {
      200: Woken;
      409: Problem;
      412: Problem;
      422: Problem;
      400: Problem;
      401: Problem;
      403: Problem;
      404: Problem;
      414: Problem;
      429: Problem;
      431: Problem;
      500: Problem;
      503: Problem;
    };
  };
}
