// Actions on many events go in steps: each is a transaction of its own with its own line in the list of actions, and between two of them the
// user can stop.

const mostOfOneStep = 50;

// Sends the ids in steps. `send(ids)` returns the answer for a step. Where the database refuses a step because of one event, the step is
// halved until that event is alone; its error becomes its outcome. `onStep` gets {looked, affected, outcomes} so far.
export async function actOnEach(ids, send, {onStep, stopped}) {
  const waiting = [];
  for (let begin = 0; begin < ids.length; begin += mostOfOneStep) waiting.push(ids.slice(begin, begin + mostOfOneStep));
  let done = {looked: 0, affected: 0, outcomes: []};
  while (waiting.length && !stopped()) {
    const step = waiting.shift();
    try {
      done = after(done, step, await send(step));
    } catch (error) {
      if (!isOfOneEvent(error)) throw error;
      if (step.length > 1) waiting.unshift(...halves(step));
      else done = after(done, step, {affected: 0, outcomes: [{id: step[0], outcome: "refused", error: error.message}]});
    }
    onStep(done);
  }
}

// The state of an event forbids it (409), it is gone (404), or its data are wrong (400).
const isOfOneEvent = (error) => [400, 404, 409].includes(error.status);

function halves(step) {
  const middle = Math.ceil(step.length / 2);
  return [step.slice(0, middle), step.slice(middle)];
}

// A redrive tells the outcome of each event; a discard only how many there were.
function after(done, step, answer) {
  return {
    looked: done.looked + step.length,
    affected: done.affected + Number(answer.affected),
    outcomes: [...done.outcomes, ...(answer.outcomes ?? [])],
  };
}

// Does what a preview has counted. `send(confirmation)` returns the answer for a step, with the confirmation for the next one while something
// remains. `onStep(sums, next)` gets applied, without_effect, failed and affected so far, and what is to be confirmed next, or null.
export async function actOnAll(confirmation, send, {onStep, stopped, sums}) {
  let next = confirmation;
  let done = sums;
  while (next && !stopped()) {
    const answer = await send(next);
    done = addUp(done, answer);
    next = answer.confirmation ?? null;
    onStep(done, next);
  }
}

function addUp(sums, answer) {
  const result = {...sums};
  for (const name of ["applied", "without_effect", "failed", "affected"]) {
    if (answer[name] !== undefined) result[name] = (sums[name] ?? 0) + Number(answer[name]);
  }
  return result;
}
