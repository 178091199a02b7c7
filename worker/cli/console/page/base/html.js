// What every module of the page needs of its libraries, in one place.
import htm from "../lib/htm.js";
import {Fragment, h, render} from "../lib/preact.js";

export {useEffect, useId, useLayoutEffect, useMemo, useRef, useState} from "../lib/hooks.js";
export {Fragment, h, render};

// Values in a template become texts or properties, never markup, so data from events cannot inject any.
export const html = htm.bind(h);
