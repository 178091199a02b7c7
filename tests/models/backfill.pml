/*
 * A backfill against sessions that change its row: docs/models.md, backfill.
 *
 * One row, and a note about it in another table, which the payload of the backfill has, too. A
 * session changes or deletes the row and then emits; another changes the note and emits, without
 * touching the row. The backfill locks the row, counts the version, emits, and stores its position;
 * it gives way or is killed at any point, and begins again. What is committed becomes visible in
 * one step.
 */
/*! holds */
/*! holds -DWRITERS=3 */
/*! long -DWRITERS=4 -DNOTERS=2 */
/*! refuted disorder -DROW_NOT_LOCKED */
/*! refuted disorder -DPAYLOAD_BEFORE_VERSION */
/*! refuted twice -DPOSITION_AFTER_EVENTS */
/*! refuted lost -DPOSITION_BEFORE_EVENTS */

#ifndef WRITERS
#define WRITERS 2 /* of the row, one change each */
#endif
#ifndef NOTERS
#define NOTERS 1 /* of the note */
#endif
#define LIVES 3 /* starts of the backfill */

#include "lib/property.pml"

/* Committed: the number of the last change of each, and whether the row is there. */
byte row = 1, note = 1;
bool exists = true;
byte counter = 0; /* the last version */

byte row_lock = 0; /* of a writer: pid + 1 */
bool row_share = false; /* of the backfill */
byte counter_lock = 0; /* pid + 1 */

/* What consumers have: of the events so far, in the order of their versions. */
byte last_row = 0, last_note = 0;

byte finished = 0; /* sessions */
bool stored = false; /* the position of the backfill is behind the row */
bool over = false; /* the backfill has ended */
byte snapshots = 0;

/* An event has the row and the note, or 0 for what it does not have. Versions are committed in their order. */
inline Emit(of_row, of_note)
{
	counter++;
	if
	:: of_row != 0 -> Check(of_row >= last_row, disorder); last_row = of_row
	:: else
	fi;
	if
	:: of_note != 0 -> Check(of_note >= last_note, disorder); last_note = of_note
	:: else
	fi
}

active [WRITERS] proctype Writer()
{
	bool deletes = false;
	d_step { row_lock == 0 && !row_share -> row_lock = _pid + 1 };
	if
	:: exists ->
		if
		:: deletes = true
		:: skip
		fi;
		d_step { counter_lock == 0 -> counter_lock = _pid + 1 };
		if
		:: d_step { row++; exists = !deletes; Emit(row, 0); counter_lock = 0; row_lock = 0 }
		:: d_step { counter_lock = 0; row_lock = 0 } /* rolled back */
		fi
	:: else -> row_lock = 0
	fi;
	d_step { finished++; deletes = false }
}

active [NOTERS] proctype Noter()
{
	d_step { counter_lock == 0 -> counter_lock = _pid + 1 };
	if
	:: d_step { note++; Emit(0, note); counter_lock = 0 }
	:: counter_lock = 0 /* rolled back */
	fi;
	finished++
}

inline Release()
{
	row_share = false;
	if
	:: counter_lock == _pid + 1 -> counter_lock = 0
	:: else
	fi;
	sees = false; of_row = 0; of_note = 0
}

active proctype Backfill()
{
	byte lives = 0, of_row = 0, of_note = 0;
	bool sees = false;
	do
	:: stored -> break
	:: !stored && lives < LIVES ->
		lives++;
		if
		:: IS(POSITION_BEFORE_EVENTS) -> stored = true
		:: else
		fi;
		if
		:: d_step { IS(ROW_NOT_LOCKED) -> sees = exists; of_row = row }
		:: d_step { !IS(ROW_NOT_LOCKED) && row_lock == 0 -> row_share = true; sees = exists; of_row = row }
		:: lives < LIVES -> d_step { Release() } goto again /* gives way, or is killed */
		fi;
		if
		:: IS(PAYLOAD_BEFORE_VERSION) -> of_note = note
		:: else
		fi;
		if
		:: sees ->
			if
			:: d_step { counter_lock == 0 -> counter_lock = _pid + 1 }
			:: lives < LIVES -> d_step { Release() } goto again
			fi;
			d_step {
				if
				:: of_note == 0 -> of_note = note
				:: else
				fi
			};
			if
			:: d_step {
				Emit(of_row, of_note);
				snapshots++;
				Check(snapshots == 1, twice);
				if
				:: !IS(POSITION_AFTER_EVENTS) -> stored = true
				:: else
				fi;
				Release()
			   }
			:: lives < LIVES -> d_step { Release() } goto again
			fi
		:: else -> d_step { Release(); stored = true }
		fi;
		if
		:: stored
		:: !stored -> stored = true /* in a transaction of its own */
		:: !stored && lives < LIVES /* killed before that */
		fi;
again:		skip
	od;
	over = true
}

active proctype End()
{
	d_step {
		over && finished == WRITERS + NOTERS ->
		Check(!exists || last_row == row, lost);
		Check(!exists || last_note == note, lost);
		Check(exists || last_row == row, lost)
	}
}
