#include "base/version.h"

#include <stdlib.h>
#include <string.h>

/* The digits at text, of which there may be none; more than MOST_DIGITS of them are no version of anything. */
static long digits(const char *text, const char **end)
{
    enum { MOST_DIGITS = 9 };
    long n  = 0;
    int  at = 0;

    for (; text[at] >= '0' && text[at] <= '9'; at++)
        n = at < MOST_DIGITS ? 10 * n + (text[at] - '0') : n;
    *end = text + at;
    return n;
}

int vp_version_compare(const char *a, const char *b)
{
    while (*a || *b) {
        const char *end_a, *end_b;
        long        x = digits(a, &end_a), y = digits(b, &end_b);
        if (x != y)
            return x < y ? -1 : 1;
        if (end_a == a && end_b == b)
            break;
        a = end_a + (*end_a == '.');
        b = end_b + (*end_b == '.');
    }
    return 0;
}

bool vp_version_within(const char *version, const char *since, const char *until)
{
    return (!since || vp_version_compare(version, since) >= 0) &&
           (!until || vp_version_compare(version, until) < 0);
}

bool vp_version_is_of_release(const char *a, const char *b)
{
    char *a_minor, *b_minor;

    return strtol(a, &a_minor, 10) == strtol(b, &b_minor, 10) && *a_minor == '.' &&
           *b_minor == '.' && strtol(a_minor + 1, NULL, 10) == strtol(b_minor + 1, NULL, 10);
}

size_t vp_version_length(const char *text)
{
    size_t n = strspn(text, "0123456789.");

    while (n && text[n - 1] == '.')
        n--;
    return n;
}
