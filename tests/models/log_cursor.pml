/*
 * The cursor of a log outbox that is a snapshot: docs/models.md, log_cursor.
 *
 * Sessions emit events in transactions that commit or roll back. A worker takes moments, reads
 * chunks, publishes, stores its position, and is killed at any point, any number of times.
 */
/*! holds */
/*! holds -DCRASHES=0 -DEVENTS=3 */
/*! holds -DCRASHES=0 -DSESSIONS=3 -DTRANSACTIONS=3 -DEVENTS=2 -DNO_IDLE_XIDS */
/*! holds -DHWM_AFTER_SNAPSHOT */
/*! holds -DNEXT_XID_BEFORE_SNAPSHOT */
/*! long -DCRASHES=0 -DTRANSACTIONS=3 -DEVENTS=3 */
/*! long -DEVENTS=3 */
/*! long -DEVENTS=3 -DLIMIT_2 */
/*! refuted lost -DNO_LATE_READ */
/*! refuted lost -DLATE_FROM_XIP_ONLY */
/*! refuted disorder -DORDER_BY_TXID -DEVENTS=3 */
/*! refuted lost -DHWM_LAST */
/*! refuted lost -DNEXT_XID_FIRST */
/*! refuted lost -DSEQ_BEFORE_XID */
/*! refuted disorder -DCACHE_2 -DEVENTS=3 */
/*! refuted lost -DFULL_CHUNK_TAKEN_FOR_ALL */
/*! refuted lost -DONE_SNAPSHOT_FOR_ALL_ZONES -DEVENTS=3 */
/*! refuted lost -DCHECKPOINT_WHEN_READ */
/*! refuted disorder -DKEYS_NOT_SERIALISED -DEVENTS=3 */

#ifndef SESSIONS
#define SESSIONS 2
#endif
#ifndef TRANSACTIONS
#define TRANSACTIONS 2 /* all sessions together; their xids are 1.. */
#endif
#ifndef EVENTS
#define EVENTS 2 /* all transactions together */
#endif
#define CRASHES VALUE(CRASHES, 1)
#define KEYS 2
#ifdef CACHE_2
#define MAX_SEQ (2 * EVENTS)
#else
#define MAX_SEQ EVENTS
#endif
#define ZONES (MAX_SEQ + 1)
#define BIT(n) (1 << (n))

#include "lib/property.pml"

/* The server. */
byte transactions_left = TRANSACTIONS;
byte events_left = EVENTS;
byte in_transaction = 0; /* sessions: those with the lowest numbers, because all are alike */
byte next_xid = 1;
byte latest_completed = 0; /* xid */
byte running = 0;          /* bit per xid */
byte committed = 0;        /* bit per xid */
byte last_seq = 0;
byte key_lock[KEYS]; /* the row of an aggregate that its emitters lock: session + 1 */

/* The rows of the log, by seq. */
byte row_xid[MAX_SEQ + 1]; /* 0: no row */
byte row_key[MAX_SEQ + 1];
#ifdef CACHE_2
byte row_nth[MAX_SEQ + 1]; /* the order of emitting */
byte emitted = 0;
#define NTH(s) row_nth[s]
#else
#define NTH(s) (s)
#endif

short published = 0; /* bit per seq */

byte crashes_left = CRASHES;
/*
 * The stored position of the lane: zones, lowest first. Only the checkpoint that the next crash
 * finds is made, at any time, and after the last crash nothing is kept; other checkpoints change nothing.
 */
bool checkpointed = false;
byte stored_zones = 0;
byte stored_upto[ZONES], stored_xmax[ZONES], stored_xip[ZONES], stored_next[ZONES];

inline TakeXid()
{
	d_step {
		xid = next_xid;
		next_xid++;
		running = running | BIT(xid);
	}
}

/* No snapshot shows the rows of a transaction that has rolled back. */
inline RemoveRows()
{
	seq = 1;
	do
	:: seq > MAX_SEQ -> break
	:: else ->
		if
		:: row_xid[seq] == xid ->
			row_xid[seq] = 0;
			row_key[seq] = 0;
#ifdef CACHE_2
			row_nth[seq] = 0
#endif
		:: else
		fi;
		seq++
	od;
	seq = 0
}

/* A transaction ends. What it has done is visible when it has left the running ones. */
inline End()
{
	running = running & ~BIT(xid);
	if
	:: xid > latest_completed -> latest_completed = xid
	:: else
	fi;
	key = 0;
	do
	:: key == KEYS -> break
	:: else ->
		if
		:: key_lock[key] == _pid + 1 -> key_lock[key] = 0
		:: else
		fi;
		key++
	od;
	xid = 0;
	key = 0;
	in_transaction = in_transaction & ~BIT(_pid)
}

inline TakeSeq()
{
#ifdef CACHE_2
	if
	:: cached > 0 -> seq = cached; cached = 0
	:: else -> seq = last_seq + 1; cached = last_seq + 2; last_seq = last_seq + 2
	fi
#else
	last_seq++;
	seq = last_seq
#endif
}

inline Insert()
{
	row_xid[seq] = xid;
	row_key[seq] = key;
#ifdef CACHE_2
	emitted++;
	row_nth[seq] = emitted;
#endif
	seq = 0;
	key = 0
}

/* Emitters of one key come one after the other: each locks the aggregate until it ends. */
#define MAY_LOCK(k) (IS(KEYS_NOT_SERIALISED) || key_lock[k] == 0 || key_lock[k] == _pid + 1)
inline Lock(k)
{
	events_left--;
	key = k;
	key_lock[k] = (IS(KEYS_NOT_SERIALISED) -> 0 : _pid + 1);
	if
	:: IS(SEQ_BEFORE_XID) -> TakeSeq()
	:: else
	fi
}

inline Emit()
{
	if
	:: xid == 0 -> TakeXid()
	:: else
	fi;
	d_step {
		if
		:: seq == 0 -> TakeSeq()
		:: else
		fi;
		Insert()
	}
}

active [SESSIONS] proctype Session()
{
	byte xid = 0, key = 0, seq = 0;
#ifdef CACHE_2
	byte cached = 0;
#endif
	do
	:: d_step { transactions_left > 0 && (in_transaction & (BIT(_pid) - 1)) == BIT(_pid) - 1 ->
		transactions_left--;
		in_transaction = in_transaction | BIT(_pid)
	   };
		do
		/* A transaction may have its xid long before it emits. */
#ifndef NO_IDLE_XIDS
		:: xid == 0 -> TakeXid()
#endif
		:: d_step { events_left > 0 && MAY_LOCK(0) -> Lock(0) };
		   Emit()
		:: d_step { events_left > 0 && MAY_LOCK(1) && (events_left < EVENTS) -> Lock(1) }; /* the first has key 0 */
		   Emit()
		:: d_step { xid > 0 -> committed = committed | BIT(xid); End() }; break
		:: d_step { xid > 0 -> RemoveRows(); End() }; break /* rolled back */
		od
	:: d_step {
		transactions_left == 0;
#ifdef CACHE_2
		cached = 0
#endif
	   };
	   break
	od
}

#define SEES(xmax, xip, x) ((x) < (xmax) && !((xip) & BIT(x)))

/* The worker. `upto` and so on: how far it has read; `todo`: of the last chunk, not yet published. */
byte zones = 0;
byte upto[ZONES], xmax[ZONES], xip[ZONES], next[ZONES];
short todo = 0;

/* The moment of a chunk. */
byte hwm = 0, now_xmax = 0, now_xip = 0, now_next = 0;
bool begun = false, all_over = false; /* every transaction had ended before this moment */
bool is_full = false;

/* With the first of the reads of a moment: the others come later. */
inline NoteEnd()
{
	all_over = !begun && transactions_left == 0 && in_transaction == 0 || all_over;
	begun = true
}
#define HWM_READ (IS(HWM_LAST) -> 3 : (IS(HWM_AFTER_SNAPSHOT) || IS(NEXT_XID_FIRST) -> 2 : 1))
#define NEXT_XID_READ (IS(NEXT_XID_FIRST) -> 1 : (IS(HWM_LAST) || IS(NEXT_XID_BEFORE_SNAPSHOT) -> 2 : 3))
inline Read(nth)
{
	d_step {
		NoteEnd();
		if
		:: nth == HWM_READ -> hwm = last_seq
		:: nth == NEXT_XID_READ -> now_next = next_xid
		:: else -> now_xmax = latest_completed + 1; now_xip = running & (BIT(now_xmax) - 1) /* the snapshot */
		fi
	}
}

/* Whether the row `s` of zone `z` may have appeared late, by LateReads(). */
inline MayBeLate(s, z)
{
	late = !IS(NO_LATE_READ) && (((xip[z] & BIT(row_xid[s])) && SEES(now_xmax, now_xip, row_xid[s])) ||
		(!IS(LATE_FROM_XIP_ONLY) && row_xid[s] >= xmax[z] && row_xid[s] < next[z] && row_xid[s] < now_xmax))
}

inline SetZone(n, last_seq_of_zone)
{
	upto[n] = last_seq_of_zone;
	xmax[n] = now_xmax;
	xip[n] = now_xip;
	next[n] = now_next;
	if
	:: zones <= n -> zones = n + 1
	:: else
	fi
}

/* Removes the `n` lowest zones. */
inline DropZones(n)
{
	to = 0;
	from = n;
	do
	:: from >= zones -> break
	:: else ->
		upto[to] = upto[from]; xmax[to] = xmax[from]; xip[to] = xip[from]; next[to] = next[from];
		to++;
		from++
	od;
	zones = to;
	do
	:: to == ZONES -> break
	:: else -> upto[to] = 0; xmax[to] = 0; xip[to] = 0; next[to] = 0; to++
	od
}

/* One zone of the new snapshot up to `last`; above it the old ones stay. */
inline AfterPartial()
{
	z = 0;
	do
	:: z < zones && upto[z] <= last -> z++
	:: else -> break
	od;
	if
	:: IS(ONE_SNAPSHOT_FOR_ALL_ZONES) && zones > 0 && upto[zones - 1] > last -> last = upto[zones - 1]; z = zones
	:: else
	fi;
	DropZones(z);
	/* Makes room for the new one. */
	Check(zones < ZONES, too_small);
	to = zones;
	do
	:: to == 0 -> break
	:: else ->
		upto[to] = upto[to - 1]; xmax[to] = xmax[to - 1]; xip[to] = xip[to - 1]; next[to] = next[to - 1];
		to--
	od;
	zones++;
	SetZone(0, last)
}

/* Reads a chunk of at most `limit` rows (0: of any number) and moves the position behind it. */
inline ReadChunk()
{
	todo = 0;
	count = 0;
	last = 0;
	z = 0;
	s = 1;
	do
	:: s > hwm && (zones == 0 || s > upto[zones - 1]) -> break
	:: count > 0 && count == limit -> break
	:: else ->
		do
		:: z < zones && s > upto[z] -> z++
		:: else -> break
		od;
		if
		:: row_xid[s] > 0 && (committed & BIT(row_xid[s])) && SEES(now_xmax, now_xip, row_xid[s]) ->
			if
			:: z < zones -> MayBeLate(s, z)
			:: else -> late = true /* new */
			fi;
			if
			:: late -> todo = todo | BIT(s); count++; last = s
			:: else
			fi
		:: else
		fi;
		s++
	od;
	is_full = (count > 0 && count == limit);
	if
	:: is_full && !IS(FULL_CHUNK_TAKEN_FOR_ALL) -> AfterPartial()
	:: else ->
		if
		:: zones > 0 && upto[zones - 1] > hwm -> last = upto[zones - 1]
		:: else -> last = hwm
		fi;
		DropZones(zones);
		SetZone(0, last)
	fi
}

/* Takes the next row of the chunk: the lowest seq. */
inline Next()
{
	last = 0;
	s = 1;
	do
	:: s > MAX_SEQ -> break
	:: else ->
		if
		:: (todo & BIT(s)) && (last == 0 || (IS(ORDER_BY_TXID) && row_xid[s] < row_xid[last])) -> last = s
		:: else
		fi;
		s++
	od;
	s = last
}

/* Publishes the row `s`: all earlier events of its key have been published. */
inline Publish()
{
	z = 1;
	do
	:: z > MAX_SEQ -> break
	:: else ->
		if
		:: row_xid[z] > 0 && row_key[z] == row_key[s] && NTH(z) < NTH(s) ->
			Check(!(committed & BIT(row_xid[z])) || (published & BIT(z)), disorder)
		:: else
		fi;
		z++
	od;
	Check(committed & BIT(row_xid[s]), ghost);
	published = published | BIT(s);
	todo = todo & ~BIT(s)
}

/* Nothing more to come, and all was read. */
inline CheckNothingLost()
{
	if
	:: all_over && !is_full ->
		s = 1;
		do
		:: s > MAX_SEQ -> break
		:: else ->
			Check(row_xid[s] == 0 || !(committed & BIT(row_xid[s])) || (published & BIT(s)), lost);
			s++
		od
	:: else
	fi
}

inline Checkpoint()
{
	checkpointed = true;
	stored_zones = zones;
	z = 0;
	do
	:: z == ZONES -> break
	:: else ->
		stored_upto[z] = upto[z]; stored_xmax[z] = xmax[z]; stored_xip[z] = xip[z]; stored_next[z] = next[z];
		z++
	od
}

inline Restart()
{
	crashes_left--;
	checkpointed = false;
	todo = 0;
	zones = stored_zones;
	z = 0;
	do
	:: z == ZONES -> break
	:: else ->
		upto[z] = stored_upto[z]; xmax[z] = stored_xmax[z]; xip[z] = stored_xip[z]; next[z] = stored_next[z];
		if
		:: crashes_left == 0 -> stored_zones = 0; stored_upto[z] = 0; stored_xmax[z] = 0; stored_xip[z] = 0; stored_next[z] = 0
		:: else
		fi;
		z++
	od
}

inline ForgetMoment()
{
	begun = false; hwm = 0; now_xmax = 0; now_xip = 0; now_next = 0; all_over = false; is_full = false;
	limit = 0; count = 0; last = 0; z = 0; s = 0; to = 0; from = 0; late = false
}

active proctype Worker()
{
	byte limit = 0, count = 0, last = 0, z = 0, s = 0, to = 0, from = 0;
	bool late = false;
end:
	do
	:: /* Claim */
		Read(1); Read(2); Read(3);
		atomic {
			if
			:: limit = 0
			:: limit = 1
#ifdef LIMIT_2
			:: limit = 2
#endif
			fi;
			d_step { ReadChunk(); limit = 0; count = 0; last = 0; z = 0; s = 0; to = 0; from = 0; late = false; skip };
			/* Nobody sees how far it has come, except who finds the position after a crash. */
			do
			:: d_step { todo != 0 -> Next(); Publish(); s = 0; z = 0; last = 0 }
			:: d_step { IS(CHECKPOINT_WHEN_READ) && todo != 0 && crashes_left > 0 && !checkpointed -> Checkpoint(); z = 0 }
			:: d_step {
				todo == 0 ->
				CheckNothingLost();
				ForgetMoment()
			   };
			   if
			   :: d_step { crashes_left > 0 && !checkpointed -> Checkpoint(); z = 0 }
			   :: skip
			   fi;
			   break
			:: d_step { crashes_left > 0 -> Restart(); ForgetMoment() };
			   break
			od
		}
	od
}
