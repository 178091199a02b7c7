// Counts with their nouns, in English.
import {formatCount} from "./format.js";

export const plural = (count, noun) => `${formatCount(count)} ${noun}${Number(count) === 1 ? "" : "s"}`;
