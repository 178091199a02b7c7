/*
 * The properties that the models check. A violated one is named in the checker's message.
 */
mtype = { nothing, lost, disorder, ghost, stolen, went_back, two_publishers, stuck, too_early, too_small };
mtype broken = nothing;

inline Check(condition, property)
{
	if
	:: (condition)
	:: else -> broken = property; assert(broken != property)
	fi
}
