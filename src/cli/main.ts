#!/usr/bin/env node
import { dispatch } from "./dispatch.js";

const [word = "--help", ...args] = process.argv.slice(2);
await dispatch(word, args);
