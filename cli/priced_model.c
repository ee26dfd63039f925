#include "cli/priced_model.h"

#include "cli/names.h"

vp_status vp_model_to_price(const char *name, const vp_model_opts *opts, vp_hf_shelf *shelf,
                            vp_model **out, bool *no_graph, vp_err *err)
{
    vp_model_opts alone  = {.class_name = opts->class_name, .config_only = true};
    vp_model_opts priced = *opts;
    bool          lacks  = false;
    vp_status     st;

    priced.is_priced = true;
    st               = vp_model_with_graph(name, &priced, out, &lacks, err);
    if (lacks) {
        *err = (vp_err){0};
        VP_TRY(vp_model_open(name, &alone, out, err));
        VP_TRY(vp_hf_add_priced_graph(*out, shelf, err));
        lacks = false;
    }
out:
    if (no_graph)
        *no_graph = lacks;
    if (st != VP_OK) {
        vp_model_free(*out);
        *out = NULL;
    }
    return st;
}
