// The inboxes that the role sees, for choices and for what it may do with them.
import {get} from "../base/api.js";
import {usePolled} from "../base/refresh.js";

const most = 200; // a page of the API; the address of a view takes other names, too

export function useInboxes() {
  const {data} = usePolled((signal) => get("inboxes", {limit: most}, signal), [], {atLeast: 60});
  return data?.rows ?? [];
}

export function useOutboxes() {
  const {data} = usePolled((signal) => get("outboxes", {limit: most}, signal), [], {atLeast: 60});
  return data?.rows ?? [];
}
