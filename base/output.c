#include "base/output.h"
#include "base/options.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void vp_output_begin(void)
{
    int fd;

    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    do /* takes 0, 1 and 2 where they are free; writing to it fails */
        fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO)
        close(fd);
}

/* A pipe that nobody reads any more. */
static bool reader_is_gone(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};

    return poll(&out, 1, 0) == 1 && (out.revents & POLLERR);
}

vp_status vp_output_end(vp_err *err)
{
    int why;

    errno = 0;
    why   = fflush(stdout) != 0 ? errno : 0;
    if ((!why && !ferror(stdout)) || why == EPIPE || reader_is_gone())
        return VP_OK;
    return VP_FAIL(err, VP_ERR_STORAGE, "standard output cannot be written%s%s", why ? ": " : "",
                   why ? strerror(why) : "");
}

void vp_output_say(const char *head, const char *text)
{
    vp_text lines = {0};
    int     n     = (int)strlen(head);

    if (isatty(STDERR_FILENO))
        vp_text_wrap(text, n, n, &lines);
    if (lines.data && !lines.failed)
        fprintf(stderr, "%s%s", head, lines.data);
    else
        fprintf(stderr, "%s%s\n", head, text);
    vp_text_release(&lines);
}
