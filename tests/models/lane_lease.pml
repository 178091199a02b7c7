/*
 * The owner of a lane of a log outbox, its lease and its checkpoints: docs/models.md, lane_lease.
 *
 * Workers look for the lane, take it, publish, store their position, give the lane up, and are
 * killed and started again at any point. The clock may say at any time that the owner of the row was
 * not heard of for too long, though it lives.
 */
/*! holds */
/*! holds -DEXPIRIES=0 */
/*! refuted stolen -DLIVE_TOKENS_READ_FIRST */
/*! refuted two_publishers -DLIVE_TOKENS_READ_FIRST -DEXPIRIES=0 -DALLOW_STEALING */
/*! refuted stolen -DROW_NOT_LOCKED */
/*! refuted went_back -DCHECKPOINT_WITHOUT_TOKEN */
/*! refuted lost -DCHECKPOINT_OF_WHAT_IS_SENT */
/*! refuted disorder -DSTART_AT_OWN_POSITION */
/*! long -DWORKERS=3 -DLIVES=4 -DEXPIRIES=1 */
/*! long -DLIVES=4 -DEVENTS=4 -DEXPIRIES=2 */

#ifndef WORKERS
#define WORKERS 2
#endif
#define LIVES VALUE(LIVES, 3) /* starts of a worker, all together */
#define EVENTS VALUE(EVENTS, 3) /* of one key, all committed */
#define EXPIRIES VALUE(EXPIRIES, 2)
#define NOBODY 255
#define BIT(n) (1 << (n))

#include "lib/property.pml"

byte lives = 0;
byte live = 0; /* the slots of shared memory: bit per token of a living worker */
byte expiries_left = EXPIRIES;

/* The row of the lane. */
byte row_token = 0;
byte row_position = 0; /* events 0 to row_position - 1 are settled */
bool row_expired = false;
byte row_lock = NOBODY;

byte published = 0; /* bit per event */

#define PREFIX(n) (BIT(n) - 1)

inline Unlock()
{
	if
	:: row_lock == _pid -> row_lock = NOBODY
	:: else
	fi
}

inline ForgetLane() { has = false; sent = 0; settled = 0 }

inline ForgetLook() { seen_token = 0; seen_live = 0; seen_expired = false }

/* LaneRow::TryAcquire, its reads: first that of the row, which it locks, and then that of the tokens of living workers. */
#define ROW_READ (IS(LIVE_TOKENS_READ_FIRST) -> 2 : 1)
inline Read(nth)
{
	d_step {
		nth != ROW_READ || row_lock == NOBODY ->
		if
		:: nth == ROW_READ ->
			row_lock = (IS(ROW_NOT_LOCKED) -> NOBODY : _pid);
			seen_token = row_token;
			seen_expired = row_expired
		:: else -> seen_live = live
		fi
	}
}

inline Take()
{
	d_step {
		if
		:: IS(ALLOW_STEALING)
		:: else -> Check(row_token == 0 || row_token == token || row_expired || !(live & BIT(row_token)), stolen)
		fi;
		row_token = token;
		row_expired = false;
		has = true;
		settled = (IS(START_AT_OWN_POSITION) && row_position + 1 < EVENTS -> row_position + 1 : row_position);
		sent = settled;
		Unlock();
		ForgetLook()
	}
}

inline LeaveLane() { d_step { Unlock(); ForgetLook() } }

/* Waits for the row's lock, then writes if the token is still its own. */
inline Checkpoint()
{
	d_step {
		row_lock == NOBODY ->
		if
		:: row_token != token && !IS(CHECKPOINT_WITHOUT_TOKEN) -> ForgetLane() /* it was taken over */
		:: else ->
			settled = (IS(CHECKPOINT_OF_WHAT_IS_SENT) -> sent : settled);
			Check(settled >= row_position, went_back);
			Check((published & PREFIX(settled)) == PREFIX(settled), lost);
			row_position = settled;
			row_expired = false
		fi
	}
}

active [WORKERS] proctype Worker()
{
	byte token = 0, seen_token = 0, seen_live = 0;
	byte sent = 0;    /* handed over to the client, events 0 to sent - 1 */
	byte settled = 0; /* events 0 to settled - 1 */
	bool seen_expired = false, has = false;

begin:
	do
	:: d_step { lives < LIVES -> lives++; token = lives; live = live | BIT(token) };
		do
		:: !has ->
			Read(1);
			Read(2);
			if
			:: seen_token == 0 || seen_token == token || seen_expired || !(seen_live & BIT(seen_token)) -> Take()
			:: else -> LeaveLane()
			:: d_step { Unlock(); ForgetLook() }; goto killed
			fi
		:: d_step { has && sent < EVENTS -> sent++ }
		:: d_step { /* an event has gone through, in the order of the key */
			has && settled < sent && !(published & BIT(settled)) ->
			Check((published & PREFIX(settled)) == PREFIX(settled), disorder);
			if
			:: EXPIRIES > 0
			:: else -> Check(row_token == token, two_publishers)
			fi;
			published = published | BIT(settled)
		   }
		:: d_step { has && settled < sent && (published & BIT(settled)) -> settled++ }
		:: has -> Checkpoint()
		:: d_step { /* gives the lane up */
			has && sent == settled && row_position == settled && row_lock == NOBODY ->
			if
			:: row_token == token -> row_token = 0
			:: else
			fi;
			ForgetLane()
		   }
		:: goto killed
		od
	:: lives == LIVES -> break
	od;
	goto over;
killed:
	skip;
	d_step { live = live & ~BIT(token); token = 0; ForgetLane() };
	goto begin;
over:	skip
}

active proctype Clock()
{
end:
	do
	:: d_step { expiries_left > 0 && row_token != 0 && !row_expired -> row_expired = true; expiries_left-- }
	od
}
