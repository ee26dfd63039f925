#include "cli/check_played.h"

#include "cli/screen.h"
#include "cli/words.h"

#include "base/text.h"

#include <string.h>

/* The only script of Python among the files given; NULL: there is none, or there are several. */
static const char *script_of(const vp_checked *c)
{
    const char *only = NULL;

    for (int f = 0; f < c->n_files; f++) {
        const vp_checked_file *file = &c->files[f];
        if (!file->doc || file->doc->format != VP_FORMAT_PYTHON || file->is_part || !file->is_file)
            continue;
        if (only && strcmp(only, file->name) != 0)
            return NULL;
        only = file->name;
    }
    return only;
}

void vp_check_played_print(const vp_checked *c, const vp_command_line *line)
{
    const char *script  = script_of(c);
    vp_text     command = {0};

    if (!(line->rest && *line->rest) && !script)
        return;
    vp_text_printf(&command, "vplan dryrun");
    for (int i = 0; i < line->n_given; i++)
        if (strcmp(line->given[i].option->name, "--device") == 0 ||
            strcmp(line->given[i].option->name, "--budget") == 0) {
            vp_text_printf(&command, " %s ", line->given[i].option->name);
            vp_text_quoted(&command, line->given[i].text);
        }
    vp_text_printf(&command, " --");
    for (char **word = line->rest; word && *word; word++) {
        vp_text_printf(&command, " ");
        vp_text_quoted(&command, *word);
    }
    if (!(line->rest && *line->rest)) {
        vp_text_printf(&command, " python ");
        vp_text_quoted(&command, script);
    }
    vp_screen_command("next", vp_text_string(&command));
    vp_text_release(&command);
}
