// The inboxes and outboxes that the role sees, for choices and for what it may do with them.
import {get} from "../base/api.js";
import {usePolled} from "../base/refresh.js";

const most = 200; // a page of the API; the address of a view takes other names, too

function useRows(path) {
  const {data} = usePolled((signal) => get(path, {limit: most}, signal), [], {atLeast: 60});
  return data?.rows ?? [];
}

export const useInboxes = () => useRows("inboxes");
export const useOutboxes = () => useRows("outboxes");
