/* ---- Registering ---- */

#define SQ_ENTRY "softq.operators"

static struct sq_operator sq_operators[SQ_OPERATORS + 1];

/* The first feature that the processor lacks for the last level, or NULL where it has all of some level. */
static const char *sq_lacking;

/* When the library is loaded: take the kernels of the first level all of whose features the processor has. */
__attribute__((constructor)) static void sq_choose_level(void)
{
    static const struct ort_op operator = SQ_OP;
    int level = 0;
    while (level < SQ_LEVELS && (sq_lacking = sq_missing[level]()) != NULL) {
        ++level;
    }
    for (int i = 0; i < SQ_OPERATORS && level < SQ_LEVELS; ++i) {
        sq_operators[i].op = operator;
        sq_operators[i].facts = &sq_facts[level * SQ_OPERATORS + i];
    }
}

/* Say whether operators are registered with these options already, which onnxruntime would refuse with other words. */
static struct ort_status *sq_find(ort_api api, struct ort_session_options *options, int *found)
{
    char text[sizeof SQ_DIGEST] = "";
    size_t size = sizeof text;
    struct ort_status *absent =
        ORT_CALL(api, ORT_GET_ENTRY, const struct ort_session_options *, const char *, char *, size_t *)(
            options, SQ_ENTRY, text, &size);
    *found = absent == NULL;
    if (absent != NULL) {
        ORT_RELEASE(api, ORT_RELEASE_STATUS, struct ort_status *, absent);
        return NULL;
    }
    if (memcmp(text, SQ_DIGEST, sizeof text) != 0) {
        return sq_fail(api, ORT_INVALID_ARGUMENT,
                       "another library of softq's operators is registered with these session options already");
    }
    return NULL;
}

ORT_EXPORT struct ort_status *RegisterCustomOps(struct ort_session_options *options, const struct ort_api_base *base);

struct ort_status *RegisterCustomOps(struct ort_session_options *options, const struct ort_api_base *base)
{
    const ort_api oldest = base->get_api(1);
    /* 1.16 says on its error stream that it lacks the version, and gives none. */
    const ort_api api = base->get_api(ORT_VERSION);
    if (api == NULL) {
        return sq_fail(oldest, ORT_NOT_IMPLEMENTED, "softq's operators need onnxruntime 1.17 or newer; this is %s",
                       base->version_text());
    }
    if (sq_lacking != NULL) {
        return sq_fail(api, ORT_NOT_IMPLEMENTED, "softq's operators were built for %s: this processor has no %s",
                       SQ_CPU, sq_lacking);
    }
    int found = 0;
    struct ort_status *failed = sq_find(api, options, &found);
    if (failed != NULL || found) {
        return failed;
    }
    /* Never released: sessions keep it, and how long they live nobody says. */
    struct ort_domain *domain = NULL;
    failed = ORT_CALL(api, ORT_CREATE_DOMAIN, const char *, struct ort_domain **)("softq", &domain);
    for (size_t i = 0; failed == NULL && i < SQ_OPERATORS; ++i) {
        failed = ORT_CALL(api, ORT_DOMAIN_ADD, struct ort_domain *, const struct ort_op *)(domain,
                                                                                          &sq_operators[i].op);
    }
    for (size_t i = 0; failed == NULL && i < SQ_ATTENTIONS; ++i) {
        failed = ORT_CALL(api, ORT_DOMAIN_ADD, struct ort_domain *, const struct ort_op *)(
            domain, &sq_attention_operators[i].op);
    }
    if (failed == NULL) {
        failed = ORT_CALL(api, ORT_ADD_DOMAIN, struct ort_session_options *, struct ort_domain *)(options, domain);
    }
    if (failed == NULL) {
        failed = ORT_CALL(api, ORT_ADD_ENTRY, struct ort_session_options *, const char *, const char *)(
            options, SQ_ENTRY, SQ_DIGEST);
    }
    return failed;
}
