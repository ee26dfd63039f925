#include "base/version.h"

#include <stdlib.h>
#include <string.h>

int vp_version_compare(const char *a, const char *b)
{
    while (*a || *b) {
        char *end_a, *end_b;
        long  x = strtol(a, &end_a, 10), y = strtol(b, &end_b, 10);
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
