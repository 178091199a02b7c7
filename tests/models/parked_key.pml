/*
 * The parked key of an inbox: docs/models.md, parked_key.
 *
 * Two pullers apply the events of one key, each in order and each all of them, so every event is also a redelivery. Some
 * events fail until they are repaired: their key is parked. Two redrivers apply what is parked. Sessions are killed at
 * any step. Transactions are READ COMMITTED: each statement has a new snapshot, and a row that a statement had to wait
 * for is looked at again.
 */
/*! holds */
/*! holds -DREDRIVERS=2 -DEVENTS=2 */
/*! holds -DREDRIVERS=2 -DKILLS=0 */
/*! holds -DUNORDERED -DEVENTS=2 */
/*! long -DEVENTS=4 */
/*! long -DREDRIVERS=2 -DKILLS=2 -DREDELIVERIES=1 */
/*! long -DUNORDERED -DREDRIVERS=2 */
/*! refuted disorder -DLOOK_BEFORE_THE_INBOX_ROW */
/*! refuted disorder -DLOOK_SKIPS_LOCKED */
/*! refuted disorder -DLOOK_WITHOUT_A_LOCK */
/*! refuted stuck -DLOOK_WITHOUT_A_LOCK -DEVENTS=2 */
/*! refuted stuck -DNO_SECOND_LOOK */
/*! refuted twice -DREDRIVE_WITHOUT_THE_LOCK -DREDRIVERS=2 -DEVENTS=2 */
/*! refuted twice -DEFFECT_BEFORE_REMOVAL */
/*! refuted twice -DINBOX_ROW_IS_PURGED */
/*! refuted stuck -DUNORDERED -DEVENTS=2 -DKEY_PARKED_WITHOUT_A_LOCK */

#ifndef EVENTS
#define EVENTS 3 /* of one key; keys share nothing */
#endif
#ifndef REDRIVERS
#define REDRIVERS 1
#endif
#define KILLS VALUE(KILLS, 1)
#define REDELIVERIES VALUE(REDELIVERIES, 0)
#define BIT(n) (1 << (n))
#define BELOW(n) (BIT(n) - 1)
#define ALL BELOW(EVENTS)
#define ME BIT(_pid)

#include "lib/property.pml"

byte kills_left = KILLS, redeliveries_left = REDELIVERIES;
byte poison = 0; /* events that fail */
bool begun = false;

/* What is committed: bits per event. */
byte inbox = 0;
byte applied = 0;
byte letters = 0; /* parked */
/* The events whose row in the inbox is inserted and not committed: pid + 1. */
byte writer_of[EVENTS];

/* The row of the key in postbox.parked_key: which one, or 0. */
byte row = 0, rows = 0;
byte inserter = 0; /* pid + 1: inserted and not committed */
byte key_share = 0; /* bit per pid */
byte no_key_update = 0, update = 0; /* pid + 1; a row that is deleted and not committed is locked, too */

#define FREE(lock) ((lock) == 0 || (lock) == _pid + 1)

inline Unlock()
{
	key_share = key_share & ~ME;
	if
	:: no_key_update == _pid + 1 -> no_key_update = 0
	:: else
	fi;
	if
	:: update == _pid + 1 -> update = 0
	:: else
	fi;
	if
	:: inserter == _pid + 1 -> inserter = 0
	:: else
	fi
}

inline Forget()
{
	i = 0;
	do
	:: i == EVENTS -> break
	:: else ->
		if
		:: writer_of[i] == _pid + 1 -> writer_of[i] = 0
		:: else
		fi;
		i++
	od;
	i = 0;
	Unlock();
	step = idle; batch = 0; mine = 0; effects = 0; behind = 0; seen = 0
}

/* An effect is made after those of all earlier events are committed, or made in this transaction. */
inline MakeEffect(event)
{
	Check(!((applied | effects) & BIT(event)), twice);
	if
	:: IS(UNORDERED)
	:: else -> Check((BELOW(event) & ~(applied | effects)) == 0, disorder)
	fi;
	effects = effects | BIT(event)
}

mtype = { idle, insert, look, lock, apply, park, park_lock, commit, claim, head, whole, again };

/* A puller with its session: `next` is what its stream delivers. */
active [2] proctype Puller()
{
	byte next = 0, batch = 0, mine = 0, effects = 0, behind = 0, seen = 0, i = 0;
	bool record = false; /* an event that was given up in an earlier transaction */
	mtype step = idle;
end:
	do
	/* What was acknowledged is not delivered again, except when it is. */
	:: d_step { step == idle && next < EVENTS && (inbox & BIT(next)) && !record -> next++ }
	:: d_step { step == idle && next > 0 && redeliveries_left > 0 && !record -> redeliveries_left--; next = 0 }
	:: atomic { begun && step == idle && next < EVENTS ->
		if
		:: batch = BIT(next)
		:: next + 1 < EVENTS && !record -> batch = BIT(next) | BIT(next + 1)
		:: IS(UNORDERED) && next + 1 < EVENTS && !record -> batch = BIT(next + 1)
		fi;
		d_step {
			if
			:: IS(LOOK_BEFORE_THE_INBOX_ROW) -> seen = row
			:: else
			fi;
			i = next;
			if
			:: batch & BIT(i)
			:: else -> i++
			fi;
			step = insert
		}
	   }
	/* INSERT ... ON CONFLICT DO NOTHING waits for an uncommitted row. */
	:: d_step { step == insert && FREE(writer_of[i]) ->
		if
		:: inbox & BIT(i)
		:: else -> writer_of[i] = _pid + 1; mine = mine | BIT(i)
		fi;
		if
		:: batch >> (i + 1) -> i++ /* a batch is one event, or two in a row */
		:: else ->
			i = 0;
			if
			:: mine == 0 -> Forget(); record = false /* duplicates */
			:: mine != 0 && record -> step = park
			:: mine != 0 && !record && IS(LOOK_BEFORE_THE_INBOX_ROW) -> step = lock
			:: else -> step = look
			fi
		fi
	   }
	/* SELECT ... FOR KEY SHARE: its snapshot, and then the lock. */
	:: d_step { step == look -> seen = row; step = lock }
	:: d_step { step == lock && (seen == 0 || FREE(update) || IS(LOOK_SKIPS_LOCKED) || IS(LOOK_WITHOUT_A_LOCK)) ->
		if
		:: seen == 0 -> step = apply
		:: seen != 0 && IS(LOOK_WITHOUT_A_LOCK) -> behind = mine; step = commit
		:: seen != 0 && row == seen && FREE(update) && !IS(LOOK_WITHOUT_A_LOCK) -> key_share = key_share | ME; behind = mine; step = commit
		:: else -> step = apply
		fi;
		seen = 0
	   }
	:: atomic { step == apply && (mine & ~effects) != 0 ->
		d_step {
			i = 0;
			do
			:: (mine & ~effects) & BIT(i) -> break
			:: else -> i++
			od
		};
		if
		:: d_step { !(poison & BIT(i)) -> MakeEffect(i); i = 0; step = ((mine & ~effects) == 0 -> commit : apply) }
		/* It is parked in this transaction, with what follows of its key in the batch; or given up in a later one. */
		:: d_step { poison & BIT(i) -> i = 0; step = park }
		:: d_step { (poison & BIT(i)) && effects == 0 -> Forget(); record = true }
		fi
	   }
	/* INSERT ... ON CONFLICT DO NOTHING of the key. */
	:: d_step { step == park && FREE(inserter) && FREE(update) ->
		if
		:: row == 0 -> inserter = _pid + 1; behind = mine & ~effects; step = commit
		:: else -> step = park_lock
		fi
	   }
	:: d_step { step == park_lock && seen == 0 && IS(KEY_PARKED_WITHOUT_A_LOCK) -> behind = mine & ~effects; step = commit }
	:: d_step { step == park_lock && seen == 0 && !IS(KEY_PARKED_WITHOUT_A_LOCK) ->
		seen = row;
		if
		:: seen == 0 -> step = park
		:: else
		fi
	   }
	:: d_step { step == park_lock && seen != 0 && FREE(update) ->
		if
		:: row == seen -> key_share = key_share | ME; behind = mine & ~effects; step = commit
		:: else -> step = park /* deleted meanwhile */
		fi;
		seen = 0
	   }
	:: d_step { step == commit ->
		Check(((letters | applied) & behind) == 0, twice);
		if
		:: IS(UNORDERED) || behind == 0
		:: else -> Check(((letters | applied) & ~(behind - 1)) == 0, disorder)
		fi;
		inbox = inbox | mine;
		applied = applied | effects;
		letters = letters | behind;
		if
		:: inserter == _pid + 1 -> rows++; row = rows
		:: else
		fi;
		record = false;
		Forget()
	   }
	/* The session or the puller is killed, or the transaction fails. What is not acknowledged is delivered again. */
	:: d_step { step != idle && kills_left > 0 -> kills_left--; Forget(); record = false; next = 0 }
	od
}

/* A redriver: in the background, or an operator. */
active [REDRIVERS] proctype Redriver()
{
	byte batch = 0, mine = 0, effects = 0, behind = 0, seen = 0, i = 0;
	bool deleted = false;
	mtype step = idle;
end:
	do
	:: d_step { step == idle && row != 0 -> seen = row; step = claim }
	/* FOR NO KEY UPDATE. The background skips a locked row; an operator waits. */
	:: d_step { step == claim && IS(REDRIVE_WITHOUT_THE_LOCK) -> seen = 0; step = head }
	:: d_step { step == claim && FREE(no_key_update) && FREE(update) && !IS(REDRIVE_WITHOUT_THE_LOCK) ->
		if
		:: row == seen -> no_key_update = _pid + 1; step = head
		:: else -> step = idle
		fi;
		seen = 0
	   }
	:: d_step { step == claim && !(FREE(no_key_update) && FREE(update)) -> seen = 0; step = idle }
	/* The first letter that is visible to a new snapshot; after it the next, or another transaction. */
	:: d_step { step == head -> behind = letters & ~effects; step = (behind == 0 -> whole : apply) }
	:: atomic { step == apply ->
		d_step {
			i = 0;
			do
			:: behind & BIT(i) -> break
			:: else -> i++
			od;
			behind = 0
		};
		if
		:: d_step { !(poison & BIT(i)) -> MakeEffect(i); step = head }
		:: d_step { !(poison & BIT(i)) -> MakeEffect(i); step = commit }
		:: d_step { poison & BIT(i) -> step = commit } /* its subtransaction rolls back */
		fi;
		i = 0
	   }
	/* No letter is left: FOR UPDATE, and a look with a new snapshot. */
	:: d_step { step == whole && FREE(update) && (key_share & ~ME) == 0 ->
		update = _pid + 1;
		if
		:: IS(NO_SECOND_LOOK) -> deleted = true; step = commit
		:: else -> step = again
		fi
	   }
	/* Or it does not wait for a session that parks behind: the row stays. */
	:: d_step { step == whole && (key_share & ~ME) != 0 -> step = commit }
	:: d_step { step == again && (letters & ~effects) == 0 -> deleted = true; step = commit }
	:: d_step { step == again && (letters & ~effects) != 0 -> step = head }
	:: d_step { step == again && (letters & ~effects) != 0 -> step = commit } /* the row stays */
	:: d_step { step == commit && !(IS(EFFECT_BEFORE_REMOVAL) && (effects & ~applied)) ->
		applied = applied | effects;
		letters = letters & ~effects;
		if
		:: deleted -> row = 0
		:: else
		fi;
		deleted = false;
		Forget()
	   }
	:: d_step { step == commit && IS(EFFECT_BEFORE_REMOVAL) && (effects & ~applied) -> applied = applied | effects }
	:: d_step { step != idle && kills_left > 0 -> kills_left--; deleted = false; Forget() }
	od
}

/* Which events fail, and their repair. */
active proctype Owner()
{
	if
	:: poison = 1
	:: poison = 2
	:: poison = 3
	fi;
	begun = true;
	do
	:: poison & 1 -> poison = poison & ~1
	:: poison & 2 -> poison = poison & ~2
	:: poison == 0 -> break
	od
}

/* Retention. */
active proctype Purge()
{
end:
	d_step { IS(INBOX_ROW_IS_PURGED) && (inbox & letters) != 0 -> inbox = inbox & ~letters }
}

/* When nothing can happen any more, everything is applied, and the key goes on. */
active proctype Watch()
{
end:
	timeout -> Check(applied == ALL && letters == 0 && row == 0, stuck)
}
