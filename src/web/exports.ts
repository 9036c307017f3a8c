/** What `holdfast/express`, `holdfast/fastify` and `holdfast/hono` all export. */
export type { Answer } from "./answer.js";
export {
  type AnswerStore,
  type AnswersOptions,
  type MemoryAnswersOptions,
  memoryAnswers,
  type StoredAnswer,
} from "./answers.js";
export { type CellAnswersOptions, cellAnswers } from "./cell-answers.js";
export type { IdempotencyOptions } from "./idempotency.js";
export { heldBy, type LockRequestOptions, type RequestHold, type TakeOptions } from "./request-lock.js";
