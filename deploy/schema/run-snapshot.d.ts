// Generated from run-snapshot.schema.json; see tests/schema.

/** Something the run stored, or was kept from storing. */
export interface Artifact {
  artifactId: string;
  status: "blocked" | "stored";
  sizeBytes: number;
  mediaType: string;
  createdAt: string;
  retention: "run";
  redaction: "blocked-secret" | "none";
  relativePath?: string;
  sha256?: string;
}

/** Artifacts that were stored or kept back. */
export interface ArtifactMetrics {
  stored?: number;
  blocked?: number;
  totalBytes?: number;
}

/** What requests carried and what compaction took away. */
export interface ContextMetrics {
  inputTokens?: number;
  outputTokens?: number;
  cacheReadTokens?: number;
  cacheWriteTokens?: number;
  promptCacheStatus?: "available" | "unavailable" | "unknown";
  compactions?: number;
  lastSummaryFingerprint?: string;
  stablePrefixFingerprints?: readonly (string)[];
  lastBudget?: unknown;
}

export type ErrorCode = string;

/** How the run was judged. */
export interface Evaluation {
  profile: "development" | "standard" | "strict";
  scenarioResults: readonly (ScenarioResult)[];
  qualityScores: Readonly<Record<string, number>>;
  securityFindings: readonly unknown[];
}

/** What an extension did at one of its events. */
export interface ExtensionReceipt {
  extensionId: string;
  extensionVersion: string;
  event: string;
  status: "failed" | "succeeded" | "timed_out";
  durationMs: number;
  error?: string;
  denied?: boolean;
}

/** Where an operation stands, as results and later readers see it. */
export interface OperationSnapshot {
  schemaVersion: number;
  operationId: string;
  runId: string;
  correlationId: string;
  state: OperationState;
  transitionSequence: number;
  createdAt: string;
  updatedAt: string;
  pauseReason?: string;
  failureReason?: string;
}

/** Where a run's operation stands. */
export type OperationState = "aborting" | "accepted" | "completed" | "failed" | "paused" | "running";

/** The end of an attempt, as the terminal record and the result have it. */
export interface Outcome {
  status: RunStatus;
  finishReason: string;
  error?: OutcomeError;
}

/** What is kept of a fault that has no code of its own. */
export interface OutcomeAudit {
  originalCode: string;
}

/** The fault that ended the run. */
export interface OutcomeError {
  code: ErrorCode;
  message: string;
  audit?: OutcomeAudit;
}

/** A person's decision to release in spite of blockers. */
export interface Override {
  reason: string;
  recordedAt: string;
}

/** Whether the result may be released, and what speaks against it. */
export interface ReleaseReadiness {
  ready: boolean;
  blockers: readonly (string)[];
  warnings: readonly (string)[];
  overrideRecord?: Override;
}

/** Source: durable-runs 6. */
export interface RunMetrics {
  durationMs: number;
  turns: number;
  steps: StepMetrics;
  toolCalls: number;
  toolFailures: number;
  retries: number;
  outputChars: number;
  context?: ContextMetrics;
  artifacts?: ArtifactMetrics;
  tokens?: number;
  costUsd?: number;
  rejectedAfterAbort?: number;
}

/** Exactly these twelve members; pure JSON. Source: durable-runs 5. */
export interface RunSnapshot {
  schemaVersion: 1;
  runId: string;
  operation: OperationSnapshot;
  outcome: Outcome;
  metrics: RunMetrics;
  evaluation: Evaluation;
  releaseReadiness: ReleaseReadiness;
  trace: readonly (TraceItem)[];
  checkpoints: readonly (Readonly<Record<string, unknown>>)[];
  artifacts: readonly (Artifact)[];
  extensions: readonly (ExtensionReceipt)[];
  resumable: boolean;
}

/** How a run stands when it has stopped. */
export type RunStatus = "aborted" | "budget_exceeded" | "failed" | "paused" | "succeeded" | "timeout";

/** One evaluated scenario. */
export interface ScenarioResult {
  id: string;
  passed: boolean;
  score?: number;
  reason?: string;
}

/** Steps that ended. */
export interface StepMetrics {
  total?: number;
  succeeded?: number;
  failed?: number;
}

/** One event of the run's trace, as the log has it. */
export interface TraceItem {
  eventId: string;
  runId: string;
  sequence: number;
  timestamp: string;
  event: Readonly<Record<string, unknown>>;
}
