// Judges terminal envelopes of runs by the checked-in schema, as a receiver of another language does.
//
// Decides nothing itself: arguments are the folder whose modules it may use and the schema; standard
// input is a JSON array of envelopes; standard output is an array of verdicts, true or the first fault.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const [modules, schemaPath] = process.argv.slice(2);
const require = createRequire(modules);
const Ajv = require("ajv/dist/2020.js").default;

const schema = JSON.parse(readFileSync(schemaPath, "utf8"));
const validate = new Ajv({ strict: true, allErrors: false }).compile(schema);

/**
 * @param {unknown} value
 * @returns {value is import("../../deploy/schema/run-snapshot").RunSnapshot}
 */
function isRunSnapshot(value) {
  return validate(value);
}

/** @param {unknown} value */
function judged(value) {
  if (!isRunSnapshot(value)) {
    const [fault] = validate.errors;
    return `${fault.instancePath} ${fault.message}`;
  }
  // What a schema cannot say: the parts are of one run, and success is one thing.
  if (value.operation.runId !== value.runId) return "the operation belongs to another run";
  const isComplete = value.operation.state === "completed";
  return isComplete === (value.outcome.status === "succeeded") || "two statements about success";
}

process.stdout.write(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map(judged)));
