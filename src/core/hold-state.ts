/** `held` and `jeopardy` alternate; `released` and `lost` are final. */
export type HoldState = "held" | "jeopardy" | "released" | "lost";
