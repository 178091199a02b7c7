/*
 * The claim of a table outbox, its leases and its parked rows: docs/models.md, table_claim.
 *
 * Workers claim rows of one key, publish, store the results, take over the leases of workers that
 * are gone, and are killed and started again at any point. An event is refused now and then; an
 * operator has it tried again at once. postbox.republish makes what is published wait again, once.
 */
/*! holds */
/*! holds -DREDRIVES=1 */
/*! holds -DREPUBLISHES=1 */
/*! long -DLIVES=3 */
/*! long -DLIVES=3 -DFAILURES=2 -DREDRIVES=1 */
/*! refuted disorder -DPLAIN_SKIP_LOCKED */
/*! refuted two_publishers -DROWS_AFTER_A_LOST_ONE_STAY */
/*! refuted disorder -DPREDECESSOR_AMONG_WHAT_IS_SEEN */
/*! refuted two_publishers -DLIVE_TOKENS_READ_FIRST -DLIVES=3 */
/*! refuted two_publishers -DLEASE_ENDS_WHILE_SENDING */
/*! refuted two_publishers -DOWN_LEASES_END_BY_AGE */
/*! refuted stuck -DBEHIND_WITHOUT_HOLDING_THE_HEAD */
/*! refuted stuck -DREDRIVE_IN_ONE_STATEMENT -DREDRIVES=1 */
/*! refuted two_publishers -DREPUBLISHES=1 -DRUN_BEGINS_AT_ONCE */
/*! refuted two_publishers -DREPUBLISHES=1 -DOPEN_ROW_STAYS_FREE */

#ifndef WORKERS
#define WORKERS 2
#endif
#define LIVES VALUE(LIVES, 2) /* starts of a worker, all together */
#ifndef ROWS
#define ROWS 3 /* of one key */
#endif
#define FAILURES VALUE(FAILURES, 1)
#ifndef REDRIVES
#define REDRIVES 0
#endif
#ifndef REPUBLISHES
#define REPUBLISHES 0
#endif
#define NOBODY 255
#define BIT(n) (1 << (n))
#define BELOW(n) (BIT(n) - 1)

#include "lib/property.pml"

byte lives = 0, live = 0; /* bit per token */
byte alive = 0; /* bit per pid */
byte failures_left = FAILURES;

/* The table: bits per row, in the order of seq. What has no bit waits (PENDING). */
byte visible = 0;   /* emitters of a key come one after the other */
byte published = 0;
byte retry = 0;     /* next_retry_at is set, publish_attempts > 0 */
byte behind = 0;    /* next_retry_at is infinity, publish_attempts = 0 */
byte tried = 0;     /* publish_attempts > 0 */
byte token_of[ROWS];
byte lock_of[ROWS]; /* FOR UPDATE: pid + 1 */
byte share_of[ROWS]; /* FOR SHARE: bit per pid */

byte again = 0;      /* the run: was published, and waits again */
bool begins = false; /* no worker has had its first row */

byte sent = 0;    /* what Pub/Sub has */
byte resent = 0;  /* what it has of the run, since that was made */
byte in_hand = 0; /* bit per pid: has claimed rows whose result it does not have */

/* Nothing waits behind nothing. */
inline CheckNobodyIsStuck()
{
	i = 0;
	do
	:: i < ROWS && (published & BIT(i)) -> i++
	:: else -> break
	od;
	Check(i == ROWS || !(behind & BIT(i)), stuck);
	i = 0
}

/* The candidates, and the verdict on each (claim_logic.h). The walk leaves out any rows (claim_floor_logic.h). */
inline Judge()
{
	i = 0;
	before = NOBODY; claimed_last = NOBODY; parked_last = NOBODY;
	do
	:: i == ROWS || !(visible & BIT(i)) -> break
	:: else ->
		if
		:: published & BIT(i)
		:: else ->
			if
			:: token_of[i] == 0 && !(behind & BIT(i)) && (due || !(retry & BIT(i))) && (!(unseen & BIT(i)) || (retry & BIT(i))) ->
				if
				:: count < limit && (IS(PLAIN_SKIP_LOCKED) || before == NOBODY || before == claimed_last) ->
					claim = claim | BIT(i); claimed_last = i; count++
				:: !IS(PLAIN_SKIP_LOCKED) && before != NOBODY && before != claimed_last && (before == parked_last || (token_of[before] == 0 && ((retry | behind) & BIT(before)))) ->
					park = park | BIT(i); parked_last = i
				:: else
				fi
			:: else
			fi;
			if
			:: IS(PREDECESSOR_AMONG_WHAT_IS_SEEN) && (unseen & BIT(i))
			:: else -> before = i
			fi
		fi;
		i++
	od;
	i = 0; before = 0; claimed_last = 0; parked_last = 0; count = 0
}

/*
 * FOR UPDATE SKIP LOCKED; what could not be locked ends the key. Rows of a run have become due after it was made, and for a claim nothing
 * is due that has become so after its begin.
 */
inline LockRows()
{
	i = 0;
	do
	:: i == ROWS -> break
	:: else ->
		if
		:: (claim | park) & BIT(i) ->
			if
			:: lock_of[i] == 0 && share_of[i] == 0 && token_of[i] == 0 && !((published | behind) & BIT(i)) && (due || !(retry & BIT(i))) && !(again & ~known & BIT(i)) ->
				lock_of[i] = _pid + 1
			:: else ->
				claim = claim & (IS(ROWS_AFTER_A_LOST_ONE_STAY) || IS(PLAIN_SKIP_LOCKED) -> ~BIT(i) : BELOW(i));
				park = park & (IS(ROWS_AFTER_A_LOST_ONE_STAY) || IS(PLAIN_SKIP_LOCKED) -> ~BIT(i) : BELOW(i))
			fi
		:: else
		fi;
		i++
	od;
	i = 0
}

/* A run begins when no later row is leased; the first of these that a claim could take is put behind it. */
inline FirstOpen()
{
	i = 1;
	do
	:: i < ROWS && (visible & BIT(i)) && ((published | behind) & BIT(i)) -> i++
	:: else -> break
	od;
	open = (i < ROWS && (visible & BIT(i)) -> i : NOBODY);
	if
	:: open != NOBODY && token_of[open] != 0 -> claim = 0; park = 0; open = NOBODY
	:: else
	fi;
	i = 0
}

inline TakeOpen()
{
	if
	:: open == NOBODY || IS(OPEN_ROW_STAYS_FREE)
	:: else ->
		if
		:: (lock_of[open] == 0 || lock_of[open] == _pid + 1) && share_of[open] == 0 && token_of[open] == 0 && !((published | behind) & BIT(open)) ->
			lock_of[open] = _pid + 1;
			claim = claim & BELOW(open);
			park = park | BIT(open)
		:: else -> claim = 0; park = 0
		fi
	fi;
	open = NOBODY
}

/* Keeps the first row of the key parked until commit, or parks nothing. The first may be one of those that are to wait by now. */
inline HoldHead()
{
	i = 0;
	do
	:: published & BIT(i) -> i++
	:: else -> break
	od;
	if
	:: (lock_of[i] == 0 || lock_of[i] == _pid + 1) && token_of[i] == 0 && (retry & BIT(i)) && !(park & BIT(i)) -> share_of[i] = share_of[i] | BIT(_pid)
	:: else -> park = 0
	fi;
	i = 0
}

inline Unlock()
{
	i = 0;
	do
	:: i == ROWS -> break
	:: else ->
		if
		:: lock_of[i] == _pid + 1 -> lock_of[i] = 0
		:: else
		fi;
		share_of[i] = share_of[i] & ~BIT(_pid);
		i++
	od;
	i = 0
}

inline CommitClaim()
{
	i = 0;
	do
	:: i == ROWS -> break
	:: else ->
		if
		:: claim & BIT(i) -> token_of[i] = token
		:: else
		fi;
		i++
	od;
	if
	:: claim & 1 -> begins = false
	:: else
	fi;
	retry = retry & ~claim;
	behind = behind | park;
	retry = retry & ~park;
	tried = tried & ~park;
	hand = claim;
	if
	:: hand != 0 -> in_hand = in_hand | BIT(_pid)
	:: else
	fi;
	claim = 0; park = 0; due = false; known = 0;
	Unlock();
	CheckNobodyIsStuck()
}

/* The first row in hand that has no result. */
inline First()
{
	i = 0;
	do
	:: (hand & ~done) & BIT(i) -> break
	:: else -> i++
	od
}

/* Stores the results: `done` has gone through, what is left of `hand` has failed or waits behind it. */
inline Settle(refused)
{
	i = 0;
	first = true;
	do
	:: i == ROWS -> break
	:: else ->
		if
		:: (hand & BIT(i)) && token_of[i] == token ->
			token_of[i] = 0;
			if
			:: done & BIT(i) ->
				published = published | BIT(i);
				if
				:: (tried | again) & BIT(i) -> unpark = true
				:: else
				fi
			:: else ->
				if
				:: refused && first -> retry = retry | BIT(i); tried = tried | BIT(i); first = false
				:: refused && !first -> behind = behind | BIT(i); tried = tried & ~BIT(i)
				:: else /* waits again */
				fi
			fi
		:: else
		fi;
		i++
	od;
	i = 0;
	do
	:: i < ROWS && (published & BIT(i)) -> i++
	:: else -> break
	od;
	if
	/* What is behind a run goes when that is over. */
	:: unpark && i < ROWS && (behind & BIT(i)) -> behind = ((again & ~published) -> behind & ~again : 0)
	:: else
	fi;
	unpark = false;
	first = false;
	i = 0;
	hand = 0;
	done = 0;
	in_hand = in_hand & ~BIT(_pid);
	CheckNobodyIsStuck()
}

inline TakeOver()
{
	i = 0;
	do
	:: i == ROWS -> break
	:: else ->
		if
		:: token_of[i] != 0 && (seen & BIT(token_of[i])) && !(seen_live & BIT(token_of[i])) -> token_of[i] = 0
		:: token_of[i] == token && (IS(OWN_LEASES_END_BY_AGE) || !(hand & BIT(i))) -> token_of[i] = 0
		:: else
		fi;
		i++
	od;
	i = 0; seen = 0; seen_live = 0
}

/* The reads of the take-over: first that of the tokens of rows, and then that of the tokens of living workers. */
#define ROWS_READ (IS(LIVE_TOKENS_READ_FIRST) -> 2 : 1)
inline Read(nth)
{
	d_step {
		i = 0;
		do
		:: nth != ROWS_READ || i == ROWS -> break
		:: else ->
			if
			:: token_of[i] != 0 -> seen = seen | BIT(token_of[i])
			:: else
			fi;
			i++
		od;
		i = 0;
		seen_live = (nth == ROWS_READ -> seen_live : (IS(LEASE_ENDS_WHILE_SENDING) -> 0 : live))
	}
}

#define TOKENS_LEFT (token_of[0] != 0 || token_of[1] != 0 || token_of[2] != 0)

active [WORKERS] proctype Worker()
{
	byte token = 0, claim = 0, park = 0, hand = 0, done = 0, limit = 0, unseen = 0, seen = 0, seen_live = 0;
	byte i = 0, before = 0, claimed_last = 0, parked_last = 0, count = 0, open = NOBODY, known = 0;
	bool due = false, unpark = false, first = false;

begin:
end:
	do
	/* Those that do not live are alike: the first of them is started. */
	:: d_step { lives < LIVES && (alive & BELOW(_pid)) == BELOW(_pid) -> alive = alive | BIT(_pid); lives++; token = lives; live = live | BIT(token) };
end_idle:
		do
		:: d_step { hand == 0 && visible != published -> limit = ROWS };
			/* Claim: each of these is a statement of one transaction. */
			atomic {
				if
				:: limit = 1
				:: skip
				fi;
				if
				:: due = true
				:: skip
				fi;
				if
				:: unseen = 1
				:: unseen = 2
				:: unseen = 3
				:: skip
				fi;
				d_step { Judge(); limit = 0; unseen = 0; known = again }
			};
			if
			:: (claim | park) == 0
			:: else -> d_step { LockRows() }
			fi;
#if REPUBLISHES > 0
			if
			:: begins && (claim & 1) && !IS(RUN_BEGINS_AT_ONCE) ->
				d_step { FirstOpen() };
				d_step { TakeOpen() }
			:: else
			fi;
#endif
			if
			:: park == 0
			:: else ->
				d_step {
					if
					:: IS(BEHIND_WITHOUT_HOLDING_THE_HEAD)
					:: else -> HoldHead()
					fi
				}
			fi;
			if
			:: d_step { CommitClaim() }
			:: d_step { CommitClaim(); hand = 0; in_hand = in_hand & ~BIT(_pid) } /* it does not learn of it */
			:: d_step { Unlock(); claim = 0; park = 0; due = false; known = 0 }; goto killed
			fi
		:: d_step { (hand & ~done) != 0 ->
			First();
			if
			:: again & BIT(i) -> Check((again & BELOW(i) & ~resent) == 0, disorder); resent = resent | BIT(i)
			:: else -> Check((visible & BELOW(i) & ~sent) == 0 && (resent == 0 || resent == again), disorder)
			fi;
			if
			:: IS(PLAIN_SKIP_LOCKED)
			:: else -> Check((in_hand & ~BIT(_pid)) == 0, two_publishers)
			fi;
			sent = sent | BIT(i);
			done = done | BIT(i);
			i = 0
		   }
		:: d_step { hand != 0 && hand == done -> Settle(false) }
		:: d_step { hand != done && failures_left > 0 -> failures_left--; Settle(true) }
		:: d_step { hand != done -> Settle(false) } /* the topic is broken, or the worker is told to go */
		:: TOKENS_LEFT && (hand == 0 || IS(OWN_LEASES_END_BY_AGE)) ->
			Read(1);
			Read(2);
			d_step { TakeOver() }
		:: goto killed
		od
	:: lives == LIVES -> goto over
	od;
killed:
	skip;
	d_step { live = live & ~BIT(token); alive = alive & ~BIT(_pid); in_hand = in_hand & ~BIT(_pid); token = 0; hand = 0; done = 0 };
	goto begin;
over:
	skip
}

active proctype Emitter()
{
	do
	:: visible != BELOW(ROWS) -> visible = (visible << 1) | 1
	:: else -> break
	od
}

#if REDRIVES > 0
#define FREE(row) (lock_of[row] == 0 && share_of[row] == 0)
/* postbox.redrive: the parked event, and what waits behind it, wait again. */
active proctype Operator()
{
	byte i = 0, seen_retry = 0, seen_behind = 0;
end:
	d_step { retry != 0 -> seen_retry = retry; seen_behind = behind };
	d_step {
		/* Waits for the row locks; then the row must still be parked. */
		(FREE(0) || !(seen_retry & 1)) && (FREE(1) || !(seen_retry & 2)) && (FREE(2) || !(seen_retry & 4));
		i = 0;
		do
		:: i == ROWS -> break
		:: else ->
			if
			:: (seen_retry & retry & BIT(i)) && token_of[i] == 0 ->
				retry = retry & ~BIT(i);
				tried = tried & ~BIT(i);
				/* The snapshot of one statement is that of its beginning. */
				behind = behind & (IS(REDRIVE_IN_ONE_STATEMENT) -> ~seen_behind : 0)
			:: else
			fi;
			i++
		od;
		seen_retry = 0;
		seen_behind = 0;
		CheckNobodyIsStuck()
	}
}
#endif

#if REPUBLISHES > 0
/* postbox.republish: a statement, and its commit. What is published in between is not in the run. */
active proctype Republisher()
{
	byte seen = 0;
end:
	d_step { published != 0 -> seen = published };
	d_step {
		again = seen;
		published = published & ~seen;
		behind = behind | (seen & ~1);
		retry = retry | 1;
		tried = tried & ~seen;
		begins = true;
		seen = 0
	}
}
#endif
