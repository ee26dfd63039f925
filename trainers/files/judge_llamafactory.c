/* trainers/files/judge_llamafactory.c: what no rule of LLaMA-Factory's can say: what stands behind the file of its command. Read in
 * 0.9.5. */
#include "trainers/files/check_internal.h"
#include "trainers/files/launch.h"

#include <string.h>

/* Behind a settings file its program hands all words to OmegaConf, which takes "--cutoff_len" for a key's name (hparams/parser.py,
 * read_args()); the parser of its arguments has none of that name. */
void vp_judge_llamafactory(vp_judged *x)
{
    const vp_document *doc = x->file->doc;

    if (doc->format != VP_FORMAT_FLAGS || !vp_launch_takes_overrides(doc->program))
        return;
    for (const vp_value *v = doc->root->first; v; v = v->next)
        if (v->is_option)
            vp_find(x->c, x->file, VP_ERROR, v, v->key,
                    vp_arena_printf(x->c->arena, "%s=%s", v->key,
                                    v->text && v->text[0] ? v->text : "true"),
                    "behind a file LLaMA-Factory takes NAME=VALUE, and refuses --%s", v->key);
}
