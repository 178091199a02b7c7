/*
 * Retention of a log outbox against emitters and lanes: docs/models.md, log_retention.
 *
 * Sessions insert into a generation, any, because a session may have the default of long ago. Each
 * lane reads what a snapshot shows, publishes, stores its position, and is killed at any point.
 * The purger empties generations; that their rows are old enough is left to chance.
 */
/*! holds */
/*! holds -DLANES=1 -DEVENTS=3 */
/*! long -DEVENTS=3 */
/*! refuted lost -DCHECK_BEFORE_LOCK */
/*! refuted lost -DSNAPSHOT_BEFORE_LOCK */
/*! refuted lost -DLANES_THAT_HAVE_NOT_BEGUN_DO_NOT_COUNT */
/*! refuted lost -DCHECK_OF_WHAT_IS_IN_MEMORY */

#ifndef EVENTS
#define EVENTS 2 /* each in a transaction of its own */
#endif
#ifndef LANES
#define LANES 2 /* event n belongs to lane n % LANES */
#endif
#define GENERATIONS 2
#define BIT(n) (1 << (n))

#include "lib/property.pml"

byte committed = 0;  /* bit per event: visible to a snapshot of now */
byte published = 0;  /* bit per event */
byte removed = 0;    /* bit per event */
byte in_generation[GENERATIONS]; /* bit per event */
byte writers[GENERATIONS];       /* bit per event: its transaction has ROW EXCLUSIVE */
bool exclusive[GENERATIONS];     /* the purger has ACCESS EXCLUSIVE */

/* The rows of the lanes. What a position has read is a set here; log_cursor shows that it is one. */
bool stored[2];
byte stored_read[2]; /* bit per event */
byte read_by[2];     /* in memory */

#if LANES == 1
#define MINE(lane) 255
#define STORED(lane) (lane == 1 || stored[lane])
#define READ(lane, set) (lane == 1 -> 255 : set[lane])
#else
#define MINE(lane) (lane == 0 -> 85 : 170)
#define STORED(lane) stored[lane]
#define READ(lane, set) set[lane]
#endif

active [EVENTS] proctype Emitter()
{
	byte g = 0;
	if
	:: g = 0
	:: g = 1
	fi;
	/* INSERT takes the lock of the partition and keeps it. */
	d_step {
		!exclusive[g] ->
		writers[g] = writers[g] | BIT(_pid);
		in_generation[g] = in_generation[g] | BIT(_pid)
	};
	if
	:: d_step { committed = committed | BIT(_pid); writers[g] = writers[g] & ~BIT(_pid); g = 0 }
	:: d_step { /* rolled back */
		in_generation[g] = in_generation[g] & ~BIT(_pid); writers[g] = writers[g] & ~BIT(_pid); g = 0
	   }
	fi
}

active [LANES] proctype Lane()
{
	byte lane = _pid - EVENTS;
	byte snapshot = 0, chunk = 0;
end:
	do
	:: snapshot = committed & ~read_by[lane];
	   d_step { chunk = snapshot & ~removed & MINE(lane); read_by[lane] = read_by[lane] | snapshot };
	   if
	   :: d_step { published = published | chunk; chunk = 0; snapshot = 0 };
	      if
	      :: d_step { stored_read[lane] = read_by[lane]; stored[lane] = true }
	      :: skip
	      fi
	   :: d_step { read_by[lane] = stored_read[lane]; chunk = 0; snapshot = 0 } /* killed */
	   fi
	od
}

/* Whether both lanes have read these events, by their rows. */
inline IsRead(events)
{
	if
	:: IS(CHECK_OF_WHAT_IS_IN_MEMORY) -> is_read = ((events) & ~(READ(0, read_by) & READ(1, read_by))) == 0
	:: IS(LANES_THAT_HAVE_NOT_BEGUN_DO_NOT_COUNT) ->
		is_read = ((events) & ~((STORED(0) -> READ(0, stored_read) : 255) & (STORED(1) -> READ(1, stored_read) : 255))) == 0
	:: else -> is_read = STORED(0) && STORED(1) && ((events) & ~(READ(0, stored_read) & READ(1, stored_read))) == 0
	fi
}

inline Remove(events)
{
	Check(((events) & committed & ~published) == 0, lost);
	removed = removed | (events)
}

active proctype Purger()
{
	byte g = 0, snapshot = 0;
	bool is_read = false;
end:
	do
	:: if
	   :: g = 0
	   :: g = 1
	   fi;
	   if
	   /* Rows and positions of one snapshot; then the rows go, one by one, without a lock. */
	   /* A first look without the lock, which spares the lock most of the time. */
	   :: d_step {
		snapshot = committed & in_generation[g];
		IsRead(snapshot)
	      };
	      if
	      :: is_read ->
		d_step { writers[g] == 0 -> exclusive[g] = true };
		d_step {
			if
			:: IS(CHECK_BEFORE_LOCK)
			:: IS(SNAPSHOT_BEFORE_LOCK) -> IsRead(snapshot)
			:: else -> IsRead(committed & in_generation[g])
			fi
		};
		d_step {
			if
			:: is_read -> Remove(in_generation[g]); in_generation[g] = 0
			:: else
			fi;
			exclusive[g] = false;
			is_read = false;
			snapshot = 0;
			g = 0
		}
	      :: else -> d_step { snapshot = 0; g = 0 }
	      fi
	   fi
	od
}
