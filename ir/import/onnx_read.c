/* Bytes to an Onnx__ModelProto, guarded.
 *
 * protobuf-c recurses as deep as the bytes tell it to and merges repeated sub-messages, and two
 * bytes of input may become a structure of a hundred. So the bytes are walked first, by the
 * descriptors and without allocating: nesting is bounded, and a field that may occur once occurs
 * once. Then the message is unpacked by an allocator with a budget. */
#include "ir/import/onnx_internal.h"

#include <onnx.pb-c.h>
#include <stdlib.h>

#define MAX_NESTING 32u /* a graph in an attribute of a node of a graph … */

/* What protobuf-c may take in all: the bytes themselves, the structures around them. */
#define BUDGET(n) (16 * (n) + ((size_t)64 << 20))

typedef struct walk {
    const uint8_t *at, *end;
} walk;

static bool read_varint(walk *w, uint64_t *out) {
    *out = 0;
    for (unsigned shift = 0; shift < 64 && w->at < w->end; shift += 7) {
        uint8_t byte = *w->at++;
        *out |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) return true;
    }
    return false;
}

static const ProtobufCFieldDescriptor *field_of(const ProtobufCMessageDescriptor *message,
                                                uint64_t id) {
    for (unsigned i = 0; i < message->n_fields; i++)
        if (message->fields[i].id == id) return &message->fields[i];
    return NULL;
}

typedef enum verdict { FINE, TOO_DEEP, MALFORMED } verdict;

static verdict check_message(const ProtobufCMessageDescriptor *message, walk w, unsigned depth);

/* A field of length-delimited bytes: inside it may be a message. */
static verdict check_bytes(const ProtobufCMessageDescriptor *message, uint64_t id, walk *w,
                           uint64_t *seen, unsigned depth) {
    uint64_t n;
    if (!read_varint(w, &n) || n > (uint64_t)(w->end - w->at)) return MALFORMED;
    walk inside = {w->at, w->at + n};
    w->at += n;
    const ProtobufCFieldDescriptor *field = field_of(message, id);
    if (!field || field->type != PROTOBUF_C_TYPE_MESSAGE) return FINE;
    uint64_t bit = (uint64_t)1 << (field - message->fields);
    if (field->label != PROTOBUF_C_LABEL_REPEATED && (*seen & bit)) return MALFORMED;
    *seen |= bit;
    return check_message(field->descriptor, inside, depth + 1);
}

static verdict check_message(const ProtobufCMessageDescriptor *message, walk w, unsigned depth) {
    if (depth > MAX_NESTING) return TOO_DEEP;
    uint64_t seen = 0;
    while (w.at < w.end) {
        uint64_t tag, skipped;
        if (!read_varint(&w, &tag)) return MALFORMED;
        verdict v = FINE;
        switch (tag & 7) {
        case 0:
            if (!read_varint(&w, &skipped)) v = MALFORMED;
            break;
        case 1:
        case 5: {
            ptrdiff_t n = (tag & 7) == 1 ? 8 : 4;
            if (w.end - w.at < n) return MALFORMED;
            w.at += n;
            break;
        }
        case 2:
            v = check_bytes(message, tag >> 3, &w, &seen, depth);
            break;
        default: /* groups: no field of ONNX is one */
            v = MALFORMED;
        }
        if (v != FINE) return v;
    }
    return FINE;
}

static void *take_bytes(void *data, size_t size) {
    size_t *left = data;
    if (size > *left) return NULL;
    *left -= size;
    return ds_xmalloc(size);
}

static void give_back(void *data, void *pointer) {
    (void)data;
    free(pointer);
}

ds_status ds_onnx__read(const uint8_t *bytes, size_t n, Onnx__ModelProto **out, ds_error *err) {
    *out = NULL;
    if (n > ds_import_format_by_name("onnx")->most_bytes)
        return ds_error_set(err, DS_ERR_LIMIT, DS_NOWHERE, "the model has more than 2 GiB");
    verdict v = check_message(&onnx__model_proto__descriptor, (walk){bytes, bytes + n}, 0);
    if (v == TOO_DEEP)
        return ds_error_set(err, DS_ERR_LIMIT, DS_NOWHERE,
                            "the model nests messages more than %u deep", MAX_NESTING);
    size_t left = BUDGET(n);
    ProtobufCAllocator allocator = {
        .alloc = take_bytes, .free = give_back, .allocator_data = &left};
    if (v == FINE) *out = onnx__model_proto__unpack(&allocator, n, bytes);
    if (*out) return DS_OK;
    return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                        "this is no ONNX model: the bytes are no ModelProto message");
}

void ds_onnx__free(Onnx__ModelProto *model) {
    size_t left = 0;
    ProtobufCAllocator allocator = {
        .alloc = take_bytes, .free = give_back, .allocator_data = &left};
    if (model) onnx__model_proto__free_unpacked(model, &allocator);
}
