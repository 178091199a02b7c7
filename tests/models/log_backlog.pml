/*
 * A lane that reads ahead of a long backlog: docs/models.md, log_backlog.
 *
 * Sessions emit events of two keys; one that has a key locks it until it commits. A worker reads
 * chunks, splits its lane anywhere, withholds what must wait, publishes each key in the order in
 * which it was handed out, stores its position, and is killed at any point.
 */
/*! holds */
/*! holds -DFAILURES=1 -DCRASHES=0 */
/*! holds -DMISTAKES */
/*! holds -DBACKLOG_IS_OVER_WHEN_PUBLISHED */
/*! long -DFAILURES=1 */
/*! long -DEVENTS=4 -DCRASHES=0 */
/*! long -DEVENTS=4 */
/*! refuted disorder -DKEYS_OF_AN_EARLIER_SNAPSHOT -DCRASHES=0 */
/*! refuted disorder -DKEYS_ABOVE_WHAT_IS_READ */
/*! refuted disorder -DKEYS_ABOVE_WHAT_IS_PUBLISHED */
/*! refuted disorder -DBACKLOG_IS_OVER_WHEN_READ */
/*! refuted lost -DWITHHELD_IN_MEMORY_ONLY */
/*! refuted lost -DRELEASED_ARE_FORGOTTEN_AT_ONCE */
/*! refuted disorder -DKEYS_OF_WITHHELD_ARE_FORGOTTEN */
/*! refuted disorder -DREADS_ON_WHILE_OTHERS_ARE_RELEASED */
/*! refuted disorder -DONE_POSITION_IS_STORED */

#ifndef SESSIONS
#define SESSIONS 2
#endif
#ifndef EVENTS
#define EVENTS 3
#endif
#define CRASHES VALUE(CRASHES, 1)
#define FAILURES VALUE(FAILURES, 0)
#define KEYS 2
#define BIT(n) (1 << (n))
#define ALL (BIT(EVENTS + 1) - 2)

#include "lib/property.pml"

/* The server. Sets of events have a bit for each seq. */
byte last_seq = 0;
byte visible = 0;       /* to a snapshot of now */
byte of_key[KEYS];
byte key_lock[KEYS];    /* session + 1 */
byte published = 0;
byte last_sent[KEYS];   /* the seq that who receives the key has seen last */

/* The row of the lane. What a position has read is a set here; log_cursor shows that it is one. */
byte stored = 0;
byte stored_withheld = 0;
byte stored_upto = 0;   /* the end of the backlog; 0: the lane is not split */

/* In the memory of the worker. */
byte upto = 0;
byte read = 0;
byte out = 0;           /* in the client */
byte failed = 0;        /* to be handed out again */
byte withheld = 0;
byte waiting = 0;       /* were withheld, and have yet to be handed out */
byte listed = 0;        /* those two, and such as have been handed out and have no result */
byte known = 0;         /* of which the keys are known: events of the backlog */
byte place_of[2 * (EVENTS + 1)]; /* of each event in the order of reading, then in that of handing out */
#define READ_ORDER 0
#define SEND_ORDER (EVENTS + 1)
#define ORDER(s) place_of[s]
#define TURN(s) place_of[SEND_ORDER + s]
byte crashes_left = CRASHES;
byte failures_left = FAILURES;

#define BACKLOG (BIT(upto + 1) - 2)
#define UNSETTLED ((out | failed | waiting) & ~listed)
#define COVERED (IS(KEYS_ABOVE_WHAT_IS_READ) -> read : (IS(KEYS_ABOVE_WHAT_IS_PUBLISHED) -> read & ~(out | failed) : stored))

inline Emit(k)
{
	last_seq++;
	key_lock[k] = _pid + 1;
	of_key[k] = of_key[k] | BIT(last_seq);
	mine = mine | BIT(last_seq)
}

active [SESSIONS] proctype Session()
{
	byte mine = 0;
	do
	:: d_step { last_seq < EVENTS && (key_lock[0] == 0 || key_lock[0] == _pid + 1) -> Emit(0) }
	/* The first one has key 0. */
	:: d_step { last_seq < EVENTS && last_seq > 0 && (key_lock[1] == 0 || key_lock[1] == _pid + 1) -> Emit(1) }
	:: d_step {
		mine != 0 ->
		visible = visible | mine;
		mine = 0;
		if :: key_lock[0] == _pid + 1 -> key_lock[0] = 0 :: else fi;
		if :: key_lock[1] == _pid + 1 -> key_lock[1] = 0 :: else fi
	   }
	:: last_seq == EVENTS && mine == 0 -> break
	od
}

/* The place after all that have one. */
inline NextPlace(which)
{
	place = 1;
	t = 1;
	do
	:: t > EVENTS -> break
	:: else ->
		if :: place_of[which + t] >= place -> place = place_of[which + t] + 1 :: else fi;
		t++
	od
}

inline HandOut(s)
{
	NextPlace(SEND_ORDER);
	TURN(s) = place;
	out = out | BIT(s)
}

/* The first event of `set` in one of the orders, or 0. */
inline First(set, which)
{
	first = 0;
	t = 1;
	do
	:: t > EVENTS -> break
	:: else ->
		if
		:: ((set) & BIT(t)) && (first == 0 || place_of[which + t] < place_of[which + first]) -> first = t
		:: else
		fi;
		t++
	od
}

/* Hands failed or waiting events out in their order, one or all. */
inline HandOutAgain(set)
{
	do
	:: set == 0 -> break
	:: else ->
		First(set, READ_ORDER);
		set = set & ~BIT(first);
		HandOut(first);
		if :: one -> break :: else fi
	od
}

inline NoteRead(s)
{
	NextPlace(READ_ORDER);
	ORDER(s) = place;
	read = read | BIT(s)
}

#define KEY(s) ((of_key[1] & BIT(s)) -> 1 : 0)
/* Whether the backlog may have an earlier event of the key: what is known of it and not yet safe. */
#define MUST_WAIT(k) ((known & ~(COVERED) & of_key[k]) != 0)
/* What was withheld goes before later events of its key. */
#define WAITS_BEHIND(k) (!IS(KEYS_OF_WITHHELD_ARE_FORGOTTEN) && (withheld & of_key[k]) != 0)

/* A chunk of one event or of all, of those in `unread`. */
inline ReadBacklog(unread)
{
	s = 1;
	do
	:: s > EVENTS -> break
	:: else ->
		if
		:: (unread) & BIT(s) ->
			NoteRead(s);
			HandOut(s);
			if :: one -> break :: else fi
		:: else
		fi;
		s++
	od
}

/* `mistaken`: the filter takes the keys of these for some of the backlog. */
inline ReadAhead()
{
	s = 1;
	do
	:: s > EVENTS -> break
	:: else ->
		if
		:: snapshot & ~read & ~BACKLOG & BIT(s) ->
			NoteRead(s);
			if
			:: !over && (MUST_WAIT(KEY(s)) || WAITS_BEHIND(KEY(s)) || mistaken) ->
				withheld = withheld | BIT(s);
				listed = listed | BIT(s)
			:: else -> HandOut(s)
			fi;
			if :: one_ahead -> break :: else fi
		:: else
		fi;
		s++
	od
}

/* Those whose keys have no event in the backlog any more, or all. */
inline Release(k)
{
	if
	:: over || !MUST_WAIT(k) ->
		waiting = waiting | (withheld & of_key[k]);
		listed = listed & ~(IS(RELEASED_ARE_FORGOTTEN_AT_ONCE) -> withheld & of_key[k] : 0);
		withheld = withheld & ~of_key[k]
	:: else
	fi
}

#define IS_PUBLISHED ((out & BACKLOG) == 0 && (failed & BACKLOG) == 0)
#define IS_SAFE (IS(BACKLOG_IS_OVER_WHEN_READ) || (IS(BACKLOG_IS_OVER_WHEN_PUBLISHED) -> IS_PUBLISHED : (read & ~stored & BACKLOG) == 0))

inline ClaimSplit()
{
	over = reads_backlog && (snapshot & ~read & BACKLOG) == 0 && IS_SAFE;
	chunk = (reads_backlog -> snapshot & ~read & BACKLOG : 0);
	if :: reads_keys && (known == 0 || !IS(KEYS_OF_AN_EARLIER_SNAPSHOT)) -> known = snapshot & BACKLOG :: else fi;
	if
	:: (reads_keys || over) && withheld != 0 && releases ->
		Release(0);
		Release(1)
	:: else
	fi;
	/* What was released is handed out first, and what is withheld when the backlog is over. */
	if
	:: (reads_keys || over) && (IS(READS_ON_WHILE_OTHERS_ARE_RELEASED) || (waiting == 0 && !(over && withheld != 0))) -> ReadAhead()
	:: else
	fi;
	ReadBacklog(chunk);
	if
	:: over && IS_PUBLISHED && listed == 0 && joins ->
		upto = 0;
		known = 0
	:: else
	fi
}

/* Where the lane may be split: at what was read at last, or above it. */
#define LAST_READ (read >= 32 -> 5 : (read >= 16 -> 4 : (read >= 8 -> 3 : (read >= 4 -> 2 : (read >= 2 -> 1 : 0)))))

inline Publish(k)
{
	First(out & of_key[k], SEND_ORDER);
	s = first;
	/* All earlier ones of its key have been published; and if some are sent again, all that follow are. */
	Check((visible & of_key[k] & (BIT(s) - 1) & ~published) == 0, disorder);
	Check((visible & of_key[k] & (BIT(s) - 1) & ~(BIT(last_sent[k] + 1) - 1)) == 0, disorder);
	last_sent[k] = s;
	published = published | BIT(s);
	out = out & ~BIT(s);
	listed = listed & ~BIT(s);
	TURN(s) = 0
}

/* Given back with all that wait behind it, as of no known result. */
inline Fail(k)
{
	failures_left--;
	failed = failed | (out & of_key[k]);
	out = out & ~of_key[k]
}

/* The events of a part that may be stored as read: all that were read before the first unsettled one. */
inline StorePart(part)
{
	First(UNSETTLED & (part), READ_ORDER);
	s = 1;
	do
	:: s > EVENTS -> break
	:: else ->
		if
		:: (read & (part) & BIT(s)) && (first == 0 || ORDER(s) < ORDER(first)) -> stored = stored | BIT(s)
		:: else
		fi;
		s++
	od
}

inline Store()
{
	if
	:: upto == 0 -> StorePart(ALL)
	:: else ->
		StorePart(BACKLOG);
		StorePart(ALL & ~BACKLOG)
	fi;
	stored_upto = upto;
	/* Where they had been read is of no account any more. */
	s = 1;
	do
	:: s > EVENTS -> break
	:: else ->
		if :: stored & ~listed & BIT(s) -> ORDER(s) = 0 :: else fi;
		s++
	od;
	stored_withheld = (IS(WITHHELD_IN_MEMORY_ONLY) -> 0 : listed & stored)
}

inline Restart()
{
	crashes_left--;
	stored = stored | (IS(ONE_POSITION_IS_STORED) && (stored & ~(BIT(stored_upto + 1) - 2)) -> BIT(stored_upto + 1) - 2 : 0);
	read = stored;
	withheld = stored_withheld;
	listed = stored_withheld;
	upto = stored_upto;
	out = 0; failed = 0; waiting = 0; known = 0;
	s = 1;
	do
	:: s > EVENTS -> break
	:: else -> TURN(s) = 0; ORDER(s) = 0; s++
	od
}

/* Everything was read, and has its result. */
inline CheckAll()
{
	if
	:: last_seq == EVENTS && visible == ALL && (ALL & ~read) == 0 && (out | failed | waiting | withheld) == 0 ->
		Check((ALL & ~published) == 0, lost);
		Check((of_key[0] & ~(BIT(last_sent[0] + 1) - 1)) == 0, disorder);
		Check((of_key[1] & ~(BIT(last_sent[1] + 1) - 1)) == 0, disorder)
	:: else
	fi
}

inline Clear()
{
	s = 0; t = 0; place = 0; first = 0; chunk = 0; snapshot = 0; over = false;
	one = false; one_ahead = false; mistaken = false; reads_backlog = false; reads_keys = false; releases = false; joins = false;
	at = 0
}

/* A choice that would change nothing is not made, so that no step is searched twice. */
#define SEVERAL(set) (((set) & ((set) - 1)) != 0)
#define UNREAD_BACKLOG (visible & ~read & BACKLOG)
#define UNREAD_AHEAD (visible & ~read & ~BACKLOG)

active proctype Worker()
{
	byte s = 0, t = 0, place = 0, first = 0, chunk = 0, snapshot = 0, at = 0;
	bool over = false, one = false, one_ahead = false, mistaken = false, reads_backlog = false, reads_keys = false, releases = false, joins = false;
end:
	do
	/* Claim. */
	:: atomic { failed != 0 && out == 0 ->
		if :: SEVERAL(failed) -> one = true :: one = false fi;
		d_step { HandOutAgain(failed); Clear() }
	   }
	:: atomic { failed == 0 && waiting != 0 ->
		if :: SEVERAL(waiting) -> one = true :: one = false fi;
		d_step { HandOutAgain(waiting); Clear() }
	   }
	:: atomic { failed == 0 && waiting == 0 && upto == 0 && (visible & ~read) != 0 ->
		if :: SEVERAL(visible & ~read) -> one = true :: one = false fi;
		d_step { chunk = visible & ~read; ReadBacklog(chunk) };
		/* It was a long one. */
		if
		:: last_seq > 0 -> at = (LAST_READ > 0 -> LAST_READ : 1);
			do
			:: at < last_seq -> at++
			:: break
			od;
			skip;
			d_step { upto = at; known = 0; Clear() }
		:: d_step { Clear() }
		fi
	   }
	:: atomic { failed == 0 && waiting == 0 && upto != 0 ->
		if :: reads_backlog = true :: reads_backlog = false fi;
		if :: reads_keys = true :: reads_keys = false fi;
		if :: reads_backlog && SEVERAL(UNREAD_BACKLOG) -> one = true :: one = false fi;
		if :: (reads_keys || reads_backlog) && SEVERAL(UNREAD_AHEAD) -> one_ahead = true :: one_ahead = false fi;
#ifdef MISTAKES
		if :: (reads_keys || reads_backlog) && UNREAD_AHEAD != 0 -> mistaken = true :: mistaken = false fi;
#endif
		if :: (reads_keys || reads_backlog) && withheld != 0 -> releases = true :: releases = false fi;
		if :: reads_backlog && UNREAD_BACKLOG == 0 && (out & BACKLOG) == 0 -> joins = true :: joins = false fi;
		d_step { snapshot = visible; ClaimSplit(); CheckAll(); Clear() }
	   }
	/* Results. */
	:: d_step { out & of_key[0] -> Publish(0); CheckAll(); Clear() }
	:: d_step { out & of_key[1] -> Publish(1); CheckAll(); Clear() }
	:: d_step { failures_left > 0 && (out & of_key[0]) -> Fail(0); Clear() }
	:: d_step { failures_left > 0 && (out & of_key[1]) -> Fail(1); Clear() }
	/* Checkpoint. */
	:: d_step { (read & ~stored) != 0 || stored_upto != upto || stored_withheld != (listed & stored) -> Store(); Clear() }
	:: d_step { crashes_left > 0 -> Restart(); Clear() }
	od
}
