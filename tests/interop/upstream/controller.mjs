// Starts the published upstream controller and does what a test asks: one JSON object a line on
// standard input, one answer a line on standard output. It knows nothing of what a test expects.
//
//   node controller.mjs PACKAGE_FOLDER
//
// A request is {id, op, ...}; its answer is {id, ok: true, ...} or {id, ok: false, error}. Lines
// without an id are notices: {notice: "ready" | "state" | "event" | "semantic_tool" |
// "integrity_error" | "runner_exit", ...}; "state" follows each write of the controller's state file.
// At the end of standard input every runner started here is killed and the process exits.

import { createInterface } from "node:readline";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const controlPlaneFile = join(
  resolve(process.argv[2]),
  "control-plane/durable-prp-control-plane.js",
);
const { DurablePrpControlPlane, spawnRunner } = await import(pathToFileURL(controlPlaneFile).href);

let plane = null;
let opened = null;
let commitGate = null;
const runners = new Map();

function say(line) {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

function requirePlane() {
  if (plane === null) throw new Error("no control plane is open");
  return plane;
}

function requireRunner(name) {
  const runner = runners.get(name);
  if (runner === undefined) throw new Error(`no runner has the name ${name}`);
  return runner;
}

// What it costs to acknowledge: with the gate closed the upstream controller holds back its ACK.
function openCommitGate() {
  commitGate?.release();
  commitGate = null;
}

function closeCommitGate() {
  if (commitGate !== null) return;
  let release;
  const released = new Promise((settle) => {
    release = settle;
  });
  commitGate = { release, released };
}

// The store's own writes are the only moments at which its state changes for others to see.
function reportWrites(store) {
  for (const name of ["save", "commit"]) {
    const write = store[name].bind(store);
    store[name] = (...given) => {
      write(...given);
      const { state } = store;
      say({
        notice: "state",
        ackedSourceSeq: state.ackedSourceSeq,
        connectionCount: state.connectionCount,
        leaseExpiresAt: state.lastLeaseExpiresAt,
        commands: Object.fromEntries(state.commands.map((each) => [each.commandId, each.status])),
      });
    };
  }
}

async function open(request) {
  if (plane !== null) throw new Error("a control plane is open already");
  const created = new DurablePrpControlPlane({
    stateDirectory: request.stateDirectory,
    identity: request.identity,
    expectedRunnerVersion: request.runnerVersion,
    expectedRunnerDigest: request.runnerDigest,
    connectionLeaseTtlMs: request.leaseTtlMs ?? undefined,
    onCommittedEvent: async (event) => {
      if (request.report ?? true) say({ notice: "event", event });
      if (commitGate !== null) await commitGate.released;
    },
    onSemanticToolInput: async (call) => {
      say({ notice: "semantic_tool", call });
      return request.semanticTool ?? { result: null, isError: true };
    },
    onProtocolIntegrityError: (error) => {
      say({ notice: "integrity_error", code: error.code ?? error.message });
    },
  });
  if (request.report ?? true) reportWrites(created.store);
  await created.start(request.port ?? 0);
  plane = created;
  opened = request;
  return { connectUrl: created.connectUrl, port: Number(new URL(created.connectUrl).port) };
}

// The controller's own launch is used as it is. A first call with a launcher that starts nothing
// shows the command line and the names in the environment; only the second starts the process.
function launch(request) {
  if (runners.has(request.name)) throw new Error(`a runner has the name ${request.name} already`);
  const options = {
    connectUrl: requirePlane().connectUrl,
    stateDirectory: request.stateDirectory,
    identity: opened.identity,
    ticket: "shown-to-nobody",
    maxOutboxBytes: request.maxOutboxBytes ?? 4 * 1024 * 1024,
    p0ReserveBytes: request.p0ReserveBytes ?? 512 * 1024,
    maxRuntimeMs: request.maxRuntimeMs ?? undefined,
    maxLifetimeMs: request.maxLifetimeMs ?? undefined,
    reconnectGraceMs: request.reconnectGraceMs ?? undefined,
    lifecyclePolicy: request.lifecyclePolicy ?? undefined,
    diagnosticsDirectory: request.diagnosticsDirectory ?? undefined,
    environment: request.environment ?? undefined,
    runnerBinaryPath: request.executable,
    runnerVersion: opened.runnerVersion,
    runnerDigest: opened.runnerDigest,
  };
  let shown = null;
  spawnRunner({
    ...options,
    processLauncher: (specification) => {
      shown = specification;
      return { child: { exitCode: null, kill: () => false }, completion: new Promise(() => {}) };
    },
  });
  const ticket = plane.issueBootstrapTicket(request.ticketTtlMs ?? 60_000);
  return {
    ...keep(request.name, spawnRunner({ ...options, ticket })),
    command: shown.command,
    args: [...shown.args],
    cwd: shown.cwd,
    environmentNames: Object.keys(shown.environment).sort(),
  };
}

function restart(request) {
  const runner = requireRunner(request.name);
  if (runner.exit === null) throw new Error(`runner ${request.name} is still running`);
  const ticket = requirePlane().issueBootstrapTicket(request.ticketTtlMs ?? 60_000);
  return keep(request.name, runner.handle.restart(ticket));
}

function keep(name, handle) {
  const runner = { handle, exit: null };
  runner.finished = handle.completion
    .catch((error) => ({ code: null, signal: null, stdout: "", stderr: error.message }))
    .then((exit) => {
      runner.exit = exit;
      say({ notice: "runner_exit", name, exit });
    });
  runners.set(name, runner);
  return { pid: handle.child.pid ?? null };
}

// Only the runner itself, as a crash would end it: what it started is its own affair.
function kill(request) {
  return { sent: requireRunner(request.name).handle.child.kill(request.signal ?? "SIGKILL") };
}

// The published controller has no call for it; its authority is this record.
function revoke() {
  const { store } = requirePlane();
  const revokedAt = new Date().toISOString();
  const leases = Object.values(store.state.leases).filter((lease) => lease.revokedAt === null);
  for (const lease of leases) {
    lease.revokedAt = revokedAt;
    lease.revocationEpoch += 1;
  }
  store.save();
  return { revoked: leases.length };
}

function snapshot(request) {
  const { state } = requirePlane().store;
  return {
    identity: state.identity,
    ackedSourceSeq: state.ackedSourceSeq,
    connectionCount: state.connectionCount,
    activeConnections: plane.activeRunnerConnectionCount(),
    replayDeliveries: state.replayDeliveries,
    duplicateCommandResults: state.duplicateCommandResults,
    freshBootstraps: state.freshBootstraps,
    malformedFrames: state.malformedFrames,
    tickets: Object.keys(state.tickets).length,
    leases: Object.values(state.leases).map((lease) => ({
      leaseId: lease.leaseId,
      protocolVersion: lease.protocolVersion,
      expiresAtUnixMs: lease.expiresAtUnixMs,
      revocationEpoch: lease.revocationEpoch,
      revokedAt: lease.revokedAt,
    })),
    commands: state.commands.map((command) => ({
      commandId: command.commandId,
      controllerSeq: command.controllerSeq,
      type: command.type,
      status: command.status,
      result: command.result,
      deliveryCount: state.commandDeliveryCounts[command.commandId] ?? 0,
    })),
    events: state.committedEvents.map((event) => ({
      sourceSeq: event.sourceSeq,
      sourceEventId: event.sourceEventId,
      eventType: event.eventType,
      priority: event.priority,
      deliveryCount: event.deliveryCount,
      logicalEffectCount: event.logicalEffectCount,
      ...(request.envelopes ? { envelope: event.envelope } : {}),
    })),
  };
}

async function stop() {
  openCommitGate();
  await requirePlane().stop();
  await plane.drainPendingConnectionProcessing();
  plane = null;
  return {};
}

const operations = {
  open,
  launch,
  restart,
  kill,
  revoke,
  snapshot,
  stop,
  ticket: (request) => ({ ticket: requirePlane().issueBootstrapTicket(request.ttlMs ?? 60_000) }),
  queue: (request) => {
    const command = requirePlane().queueCommand(
      request.type,
      request.payload ?? {},
      request.commandId ?? undefined,
      request.deliver ?? true,
    );
    return { commandId: command.commandId, controllerSeq: command.controllerSeq };
  },
  disconnect: () => {
    requirePlane().disconnectActiveRunner();
    return {};
  },
  hold: () => {
    closeCommitGate();
    return {};
  },
  release: () => {
    openCommitGate();
    return {};
  },
};

async function answer(line) {
  let id = null;
  try {
    const request = JSON.parse(line);
    id = request.id;
    const operation = Object.hasOwn(operations, request.op) ? operations[request.op] : null;
    if (operation === null) throw new Error(`unknown operation ${request.op}`);
    say({ ...(await operation(request)), id, ok: true });
  } catch (error) {
    say({ id, ok: false, error: error.message });
  }
}

// A runner is the leader of a process group of its own, so its children go with it.
function endRunners() {
  for (const { handle, exit } of runners.values()) {
    if (exit !== null || !handle.processGroupId) continue;
    try {
      process.kill(-handle.processGroupId, "SIGKILL");
    } catch {
      // It ended by itself in the meantime.
    }
  }
}

say({ notice: "ready" });
for await (const line of createInterface({ input: process.stdin })) void answer(line);
endRunners();
process.exit(0);
