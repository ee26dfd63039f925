#include "plan/memory.h"

#include <assert.h>
#include <string.h>

#define X(name, text) text,
static const char *const memories[VP_N_MEMORIES] = {VP_MEMORY_TABLE(X)};
static const char *const streams[VP_N_STREAMS]   = {VP_STREAM_TABLE(X)};
#undef X

const char *vp_memory_name(vp_memory m)
{
    assert(m < VP_N_MEMORIES);
    return memories[m];
}

vp_memory vp_memory_by_name(const char *name)
{
    int m = 0;

    while (m < VP_N_MEMORIES && strcmp(memories[m], name) != 0)
        m++;
    return (vp_memory)m;
}

const char *vp_stream_name(vp_stream s)
{
    assert(s < VP_N_STREAMS);
    return streams[s];
}

vp_stream vp_stream_by_name(const char *name)
{
    int s = 0;

    while (s < VP_N_STREAMS && strcmp(streams[s], name) != 0)
        s++;
    return (vp_stream)s;
}
