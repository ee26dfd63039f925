/* trainers/files/python_changes.c: known by their letters: what is counted is the model as it is published. */
#include "trainers/files/python_changes.h"

#include <ctype.h>
#include <string.h>

/* Sizes that a config has, by the families' names, and what of it is dropped out. */
static const char *const sizes[] = {"num_hidden_layers",
                                    "n_layer",
                                    "num_layers",
                                    "hidden_size",
                                    "n_embd",
                                    "d_model",
                                    "vocab_size",
                                    "n_head",
                                    "num_attention_heads",
                                    "num_key_value_heads",
                                    "intermediate_size",
                                    "d_ff",
                                    "n_inner",
                                    "num_local_experts",
                                    "attention_dropout",
                                    "hidden_dropout",
                                    "hidden_dropout_prob",
                                    "attention_probs_dropout_prob",
                                    "resid_pdrop",
                                    "attn_pdrop",
                                    "embd_pdrop"};

static bool is_letter(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static const char *find_text(const char *from, const char *end, const char *text)
{
    return end > from ? memmem(from, (size_t)(end - from), text, strlen(text)) : NULL;
}

/* config.num_hidden_layers = 4, from_pretrained(..., num_hidden_layers=4): the size that is set; NULL: none is. */
static const char *size_set(const vp_python_reader *r, const char *from)
{
    bool makes = find_text(from, r->at, "Config(") || find_text(from, r->at, "Config.from_") ||
                 find_text(from, r->at, ".from_pretrained(") ||
                 find_text(from, r->at, "from_config(");

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (const char *p = from; (p = find_text(p, r->at, sizes[i])) != NULL; p++) {
            const char *behind = p + strlen(sizes[i]);
            if (p == from || is_letter(p[-1]) || (behind < r->at && is_letter(*behind)))
                continue;
            while (behind < r->at && *behind == ' ')
                behind++;
            bool sets    = behind + 1 < r->at && *behind == '=' && behind[1] != '=';
            bool is_attr = p[-1] == '.' && !find_text(from, p, "=") && !find_text(from, p, "self.");
            if (sets && (is_attr || (makes && p[-1] != '.')))
                return sizes[i];
        }
    return NULL;
}

static vp_status say(vp_python_reader *r, int line, bool is_uncounted, const char *text)
{
    vp_status st = vp_document_remark(r->doc, line, NULL, false, r->err, "%s", text);

    if (st == VP_OK)
        r->doc->last_remark->is_uncounted = r->doc->last_remark->of_model = is_uncounted;
    return st;
}

static vp_status note_vocabulary(vp_python_reader *r, const char *from, int line)
{
    static const char resize[] = "resize_token_embeddings(";
    const char       *at       = find_text(from, r->at, resize);

    if (!at)
        return VP_OK;
    at += sizeof resize - 1;
    if (strncmp(at, "len(", 4) == 0)
        return say(r, line, false,
                   "the vocabulary becomes the tokenizer's, a few tokens more or less than the "
                   "published one, which is counted");
    return say(r, line, true,
               vp_arena_printf(r->doc->arena,
                               "resize_token_embeddings() in line %d: another vocabulary than the "
                               "published one, whose logits are missing from this answer",
                               line));
}

/* What a call of the script's does that a trainer's argument does too. */
static vp_status switch_on(vp_python_reader *r, const char *key, bool is_plain, int line)
{
    vp_value *v;
    vp_status st = VP_OK;

    if (vp_value_member(r->doc->root, key))
        goto out;
    VP_TRY(vp_python_add(r, r->doc->root, key, &v));
    v->kind = VP_VALUE_BOOL, v->boolean = true, v->text = "True";
    v->line = line;
    if (r->may_run || !is_plain)
        vp_python_be_unread(v);
out:
    return st;
}

/* torch.compile(model) is torch_compile; apply_liger_kernel_to_llama() and AutoLigerKernelForCausalLM are use_liger_kernel, unless they are told
 * which of the kernels. */
static vp_status note_switches(vp_python_reader *r, const char *from, int line)
{
    static const char apply[] = "apply_liger_kernel_to_";
    const char       *liger = find_text(from, r->at, apply), *open = liger;
    vp_status         st = VP_OK;

    if (strncmp(from, "from ", 5) == 0 || strncmp(from, "import ", 7) == 0)
        goto out;
    if (find_text(from, r->at, "torch.compile("))
        VP_TRY(switch_on(r, "torch_compile", true, line));
    while (open && open < r->at && is_letter(*open))
        open++;
    if (open && open + 1 < r->at && *open == '(')
        VP_TRY(switch_on(r, "use_liger_kernel", open[1] == ')', line));
    if (find_text(from, r->at, "AutoLigerKernelForCausalLM."))
        VP_TRY(switch_on(r, "use_liger_kernel", true, line));
out:
    return st;
}

/* def create_optimizer(self): of a trainer of the script's own, which does this by itself. */
static vp_status note_override(vp_python_reader *r, const char *from, int line)
{
    static const struct {
        const char *method, *says;
        bool        decides; /* what is counted may be another step */
    } rows[] = {
        {"create_optimizer", "the script makes its optimizer itself; what that keeps", true},
        {"create_optimizer_and_scheduler", "the script makes its optimizer itself; what that keeps",
         true},
        {"training_step", "the script's own step; what that keeps", true},
        {"compute_loss", "the script's own loss; what it keeps beside the model's own", false},
    };
    static const char def[] = "def ";
    vp_status         st    = VP_OK;

    if (strncmp(from, def, sizeof def - 1) != 0 || r->indent == 0 ||
        (r->imports & VP_PYTHON_LIGHTNING))
        goto out;
    from += sizeof def - 1;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t n = strlen(rows[i].method);
        if (strncmp(from, rows[i].method, n) != 0 || from[n] != '(')
            continue;
        VP_TRY(vp_document_remark(r->doc, line, NULL, false, r->err,
                                  "%s() in line %d: %s is missing from this answer", rows[i].method,
                                  line, rows[i].says));
        r->doc->last_remark->is_gap = rows[i].decides;
    }
out:
    return st;
}

/* ema = copy.deepcopy(model), notebook_launcher(train, num_processes=2). */
static vp_status note_copies(vp_python_reader *r, const char *from, int line)
{
    static const char *const copies[] = {"deepcopy(model", "create_reference_model("};
    const char              *launch   = find_text(from, r->at, "notebook_launcher("), *n;
    vp_status                st       = VP_OK;

    for (size_t i = 0; i < sizeof copies / sizeof *copies; i++) {
        if (!find_text(from, r->at, copies[i]))
            continue;
        VP_TRY(vp_document_remark(r->doc, line, NULL, false, r->err,
                                  "a copy of the model in line %d: what it takes on the card is "
                                  "missing from this answer",
                                  line));
        r->doc->last_remark->is_uncounted = true;
    }
    n = launch ? find_text(launch, r->at, "num_processes") : NULL;
    n = n ? n + strlen("num_processes") + strspn(n + strlen("num_processes"), " =") : NULL;
    if (launch && !(n && *n == '1' && !isdigit((unsigned char)n[1])))
        VP_TRY(say(r, line, false,
                   "notebook_launcher() starts several processes: what follows is of one; --world "
                   "N says how many"));
out:
    return st;
}

vp_status vp_python_note_changes(vp_python_reader *r, const char *from, int line)
{
    vp_status st = VP_OK;

    if (!r->trains_line)
        VP_TRY(note_override(r, from, line));
    if (find_text(from, r->at, "notebook_launcher(") || !r->trains_line)
        VP_TRY(note_copies(r, from, line));

    if (strncmp(from, "def ", 4) == 0 || strncmp(from, "class ", 6) == 0 || r->trains_line)
        return VP_OK; /* behind the trainer nothing of it counts */
    const char *size = size_set(r, from);
    if (size)
        VP_TRY(say(r, line, true,
                   vp_arena_printf(r->doc->arena,
                                   "%s in line %d: another %s than that of a published model; "
                                   "--model with a config.json that has it asks",
                                   size, line, strstr(size, "drop") ? "dropout" : "size")));
    VP_TRY(note_vocabulary(r, from, line));
    VP_TRY(note_switches(r, from, line));
out:
    return st;
}
