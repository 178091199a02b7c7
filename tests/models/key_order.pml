/*
 * The order of a key in the puller, from the service to the inbox: docs/models.md, key_order.
 *
 * The service delivers the messages of a key in order over a stream. The I/O thread asks the gate
 * and hands them on to the key's queue. Appliers apply what is ready; an event fails now and then,
 * and its queue is given back. Nacks get lost, leases expire, the service moves a message to its
 * dead-letter topic, the puller is killed. What is on its way arrives in the order of sending.
 */
/*! holds */
/*! holds -DDEAD_LETTERS=1 -DCRASHES=0 */
/*! holds -DGATE_OF_ONE_MESSAGE -DCRASHES=0 */
/*! long -DMESSAGES=4 */
/*! long -DFAILURES=3 -DDEAD_LETTERS=1 */
/*! refuted disorder -DQUEUE_FORGOTTEN_FIRST -DCRASHES=0 */
/*! refuted disorder -DQUEUE_FORGOTTEN_FIRST -DGATE_OF_ONE_MESSAGE -DCRASHES=0 */
/*! refuted disorder -DGATE_OF_ONE_MESSAGE -DDEAD_LETTERS=1 -DCRASHES=0 */
/*! refuted disorder -DEARLIER_ARRIVALS_COUNT -DCRASHES=0 */
/*! refuted disorder -DNO_GATE -DCRASHES=0 */
/*! refuted disorder -DREST_OF_THE_QUEUE_STAYS -DCRASHES=0 */
/*! refuted lost -DACK_BEFORE_COMMIT -DCRASHES=0 */
/*! open disorder -DNACKS_LOST=1 -DCRASHES=0 */
/*! open disorder -DEXPIRIES=1 -DFAILURES=1 -DCRASHES=0 */

#ifndef MESSAGES
#define MESSAGES 3 /* of one key; keys share nothing but threads */
#endif
#define FAILURES VALUE(FAILURES, 2)
#define NACKS_LOST VALUE(NACKS_LOST, 0)
#define EXPIRIES VALUE(EXPIRIES, 0)
#define DEAD_LETTERS VALUE(DEAD_LETTERS, 0)
#define CRASHES VALUE(CRASHES, 1)
#define WIRE 3
#define QUEUE 4
#define CALLS 8
#define ALL (BIT(MESSAGES) - 1)
#define BIT(n) (1 << (n))
#define BELOW(n) (BIT(n) - 1)

#include "lib/property.pml"

byte failures_left = FAILURES, nacks_lost_left = NACKS_LOST, expiries_left = EXPIRIES;
byte dead_letters_left = DEAD_LETTERS, crashes_left = CRASHES;

/* The service. Bits per message. */
byte cursor = 0; /* the next one to deliver */
byte acked = 0, dead = 0;
byte leased = 0;              /* delivered, and neither acked nor taken back */
byte delivery[MESSAGES];      /* how often it was delivered, modulo 4: its ack id, with the message */
#define ID(m) ((m) + 8 * delivery[m])
#define MESSAGE(id) ((id) & 7)
#define IS_CURRENT(id) ((leased & BIT(MESSAGE(id))) && (id) == ID(MESSAGE(id)))
byte unreachable = 0; /* its nack was lost: it is delivered again when its lease ends */

/* Between service and puller. */
mtype = { ack, nack, give_back };
chan wire = [WIRE] of { byte };
chan calls = [CALLS] of { mtype, byte };
chan answers = [CALLS] of { byte }; /* the service has this one back */

/* The puller. */
chan posts = [CALLS] of { mtype, byte }; /* to the I/O thread */
chan queue = [QUEUE] of { byte };
#ifdef QUEUE_FORGOTTEN_FIRST
chan forgotten = [QUEUE] of { byte };
#endif
bool suspended = false, giving_back = false;
byte out = 0, turned_away = 0, returned = 0; /* the gate */
byte waits_for = 0;
bool closed = false;

/* The inbox. */
byte applied = 0;

/* KeyGate::Admit: sets `admitted`. */
inline Admit(m)
{
	if
	:: IS(NO_GATE) || (out == 0 && !closed) -> admitted = true
	/* GATE_OF_ONE_MESSAGE */
	:: closed && m != waits_for && !(turned_away & BIT(m)) -> turned_away = turned_away | BIT(m); admitted = false
	:: closed && (m == waits_for || (turned_away & BIT(m))) -> closed = false; waits_for = 0; turned_away = 0; admitted = true
	/* The gate of all that are out. */
	:: out != 0 && !(out & BIT(m)) && !IS(NO_GATE) ->
		out = out | BIT(m); turned_away = turned_away | BIT(m); returned = returned & ~BIT(m); admitted = false
	:: else ->
		if
		:: (out & BELOW(m)) == 0 -> admitted = true
		:: else -> admitted = (turned_away & BIT(m)) && (out & BELOW(m + 1) & ~returned) == 0
		fi;
		if
		:: admitted ->
			out = out & ~BELOW(m + 1); turned_away = turned_away & ~BELOW(m + 1); returned = returned & ~BELOW(m + 1)
		:: else -> turned_away = turned_away | BIT(m); returned = returned & ~BIT(m)
		fi
	fi
}

inline GiveBack(m)
{
	if
	:: IS(GATE_OF_ONE_MESSAGE) && !closed -> closed = true; waits_for = m
	:: IS(GATE_OF_ONE_MESSAGE) && closed
	:: else ->
		out = out | BIT(m);
		returned = returned & ~BIT(m);
		/* Of later messages only an arrival from now on counts. */
		turned_away = turned_away & (IS(EARLIER_ARRIVALS_COUNT) -> ~BIT(m) : BELOW(m))
	fi
}

inline Returned(m)
{
	if
	:: (out & BIT(m)) && !(returned & BIT(m)) ->
		returned = returned | BIT(m);
		turned_away = turned_away & (IS(EARLIER_ARRIVALS_COUNT) -> ~0 : BELOW(m + 1))
	:: else
	fi
}

inline Rewind(m)
{
	leased = leased & BELOW(m);
	if
	:: cursor > m -> cursor = m
	:: else
	fi
}

/* The puller is killed. The service delivers again what was not acked. */
inline Crash()
{
	do
	:: nempty(wire) -> wire?_
	:: nempty(calls) -> calls?_, _
	:: nempty(answers) -> answers?_
	:: nempty(posts) -> posts?_, _
	:: nempty(queue) -> queue?_
#ifdef QUEUE_FORGOTTEN_FIRST
	:: nempty(forgotten) -> forgotten?_
	:: empty(forgotten) && empty(wire) && empty(calls) && empty(answers) && empty(posts) && empty(queue) -> break
#else
	:: empty(wire) && empty(calls) && empty(answers) && empty(posts) && empty(queue) -> break
#endif
	od;
	suspended = false; giving_back = false; closed = false;
	out = 0; turned_away = 0; returned = 0; waits_for = 0; unreachable = 0;
	leased = 0;
	cursor = 0;
	do
	:: acked & BIT(cursor) -> cursor++
	:: else -> break
	od
}

active proctype Service()
{
	byte id = 0, m = 0;
end:
	do
	:: d_step { cursor < MESSAGES && (dead & BIT(cursor)) -> cursor++ }
	:: d_step { cursor < MESSAGES && !(dead & BIT(cursor)) && nfull(wire) ->
		delivery[cursor] = (delivery[cursor] + 1) & 3;
		leased = leased | BIT(cursor);
		wire!ID(cursor);
		cursor++
	   }
	:: d_step { calls?[ack, id] ->
		calls?ack, id;
		Check(applied & BIT(MESSAGE(id)), lost);
		if
		:: IS_CURRENT(id) -> acked = acked | BIT(MESSAGE(id)); leased = leased & ~BIT(MESSAGE(id))
		:: else
		fi;
		id = 0
	   }
	:: atomic { calls?[nack, id] && nfull(answers) ->
		d_step { calls?nack, id; m = MESSAGE(id) };
		if
		/* An ack id of an earlier delivery has no effect. */
		:: d_step { !IS_CURRENT(id) -> answers!m; id = 0; m = 0 }
		:: d_step { IS_CURRENT(id) -> Rewind(m); answers!m; id = 0; m = 0 }
		:: d_step { IS_CURRENT(id) && nacks_lost_left > 0 ->
			nacks_lost_left--; unreachable = unreachable | BIT(m); id = 0; m = 0
		   }
		:: d_step { IS_CURRENT(id) && !(applied & BIT(m)) && dead_letters_left > 0 ->
			dead_letters_left--; dead = dead | BIT(m); Rewind(m); answers!m; id = 0; m = 0
		   }
		fi
	   }
	/* The lease of a message whose nack was lost ends. */
	:: atomic { unreachable != 0 && nfull(answers) ->
		m = 0;
		do
		:: unreachable & BIT(m) -> break
		:: !(unreachable & BIT(m)) -> m++
		od;
		d_step {
			unreachable = unreachable & ~BIT(m);
			if
			:: leased & BIT(m) -> Rewind(m)
			:: else
			fi;
			answers!m;
			m = 0
		}
	   }
	/* A lease ends while the message is in hand or on its way. */
	:: d_step { expiries_left > 0 && (leased & BIT(0)) -> expiries_left--; Rewind(0) }
	:: d_step { expiries_left > 0 && (leased & BIT(1)) -> expiries_left--; Rewind(1) }
	:: d_step { crashes_left > 0 -> crashes_left--; Crash(); id = 0 }
	od
}

active proctype IoThread()
{
	byte id = 0, m = 0;
	bool admitted = false;
end:
	do
	:: d_step { nempty(wire) && nfull(queue) && nfull(calls) ->
		wire?id;
		m = MESSAGE(id);
		Admit(m);
		if
		:: admitted -> queue!id
		:: else -> calls!nack, id
		fi;
		id = 0;
		m = 0;
		admitted = false
	   }
	:: d_step { posts?[ack, id] && nfull(calls) -> posts?ack, id; calls!ack, id; id = 0 }
	:: d_step { posts?[nack, id] && nfull(calls) -> posts?nack, id; m = MESSAGE(id); GiveBack(m); calls!nack, id; id = 0; m = 0 }
	/* What the queue holds is given back, and the key closed, in one step. */
	:: d_step { posts?[give_back, id] && len(calls) + len(queue) <= CALLS ->
		posts?give_back, id;
		do
		:: nempty(queue) ->
			queue?id; m = MESSAGE(id); GiveBack(m); calls!nack, id;
			if
			:: IS(REST_OF_THE_QUEUE_STAYS) -> break
			:: else
			fi
		:: empty(queue) -> break
		od;
		suspended = false;
		giving_back = false;
		id = 0;
		m = 0
	   }
	:: d_step { nempty(answers) -> answers?m; Returned(m); m = 0 }
	od
}

active proctype Applier()
{
	byte id = 0, m = 0;
end:
	do
	/* Its transaction commits, then it is acked. */
	:: d_step { nempty(queue) && !suspended && nfull(posts) ->
		queue?id;
		m = MESSAGE(id);
		Check((applied & BIT(m)) || ((BELOW(m) & ~applied & ~dead) == 0), disorder);
		applied = applied | BIT(m);
		posts!ack, id;
		id = 0;
		m = 0
	   }
	:: d_step { IS(ACK_BEFORE_COMMIT) && nempty(queue) && !suspended && empty(posts) -> queue?<id>; posts!ack, id; id = 0 }
	:: d_step { nempty(queue) && !suspended && failures_left > 0 -> failures_left--; suspended = true }
	/* The delay is over. */
#ifdef QUEUE_FORGOTTEN_FIRST
	:: d_step { suspended && empty(forgotten) ->
		do
		:: nempty(queue) -> queue?id; forgotten!id
		:: empty(queue) -> break
		od;
		suspended = false;
		id = 0
	   }
#else
	:: d_step { suspended && !giving_back && nfull(posts) -> giving_back = true; posts!give_back, 0 }
#endif
	od
}

#ifdef QUEUE_FORGOTTEN_FIRST
/* Another applier's thread, on its way through what it took from the queue. */
active proctype OtherApplier()
{
	byte id = 0, m = 0;
end:
	do
	:: d_step { nempty(forgotten) && nfull(posts) -> forgotten?id; posts!nack, id; id = 0 }
	od
}
#endif

/* When nothing can happen any more, everything has been applied. */
active proctype Watch()
{
end:
	timeout -> Check(((applied | dead) & ALL) == ALL, stuck)
}
