// The views, in the order of the navigation. A view is {path, title, group, key, Component}; `key` is the letter after "g". Its Component
// gets `parameters`, those of the address. `needs`: the right in `may` of the session without which the view is not offered.
import {view as actions} from "./actions.js";
import {view as charts} from "./charts.js";
import {view as deadLetters} from "./dead_letters.js";
import {view as eventWay} from "./event_way.js";
import {view as findings} from "./findings.js";
import {view as handlers} from "./handlers.js";
import {view as inboxes} from "./inboxes.js";
import {view as operations} from "./operations.js";
import {view as outboxes} from "./outboxes.js";
import {view as overview} from "./overview.js";
import {view as parkedKeys} from "./parked_keys.js";
import {view as projections} from "./projections.js";
import {view as provision} from "./provision.js";
import {view as publications} from "./publications.js";
import {view as subscriptions} from "./subscriptions.js";
import {view as workers} from "./workers.js";

export const views = [
  overview, findings, charts, publications, outboxes, workers, subscriptions, inboxes, projections, handlers, parkedKeys, deadLetters, eventWay, operations,
  provision, actions,
];
