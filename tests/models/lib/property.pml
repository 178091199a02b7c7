/*
 * The properties that the models check. A violated one is named in the checker's message.
 */
mtype = { nothing, lost, disorder, twice, ghost, stolen, went_back, two_publishers, stuck, too_early, too_small };
mtype broken = nothing;

inline Check(condition, property)
{
	if
	:: (condition)
	:: else -> broken = property; assert(broken != property)
	fi
}

/*
 * Flags of a variant that are chosen when the search starts, so that one program searches many: IS(NAME), whether -DNAME stands in the
 * variable VARIANT of the environment, and VALUE(NAME, N), the value of -DNAME=, or N. They are no part of a state. Spin takes neither as
 * an argument of an inline; and where a guard reads local variables only, it makes the step one that others may see.
 */
#define IS(name) c_expr { (*variant && flag("-D" #name, 0)) }
#define VALUE(name, otherwise) c_expr { (flag("-D" #name, otherwise)) }
c_decl {
\#include <stdlib.h>
\#include <string.h>
static const char *variant;
static int flag(const char *name, int otherwise);
}
c_code {
__attribute__((constructor)) static void read_variant(void)
{
	variant = getenv("VARIANT");
	if (!variant) variant = "";
}

static int flag(const char *name, int otherwise)
{
	size_t length = strlen(name);
	for (const char *found = strstr(variant, name); found; found = strstr(found + 1, name))
		if (found[length] == '=') return atoi(found + length + 1);
		else if (found[length] == ' ' || !found[length]) return 1;
	return otherwise;
}
}
