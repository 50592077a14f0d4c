#include "python/src/tensorflow/attributes.h"

#include <string_view>

namespace hvd::tensorflow {

namespace {

std::string wire_name(TF_OpKernelConstruction* construction, bool ignore_name_scope) {
  const TF_StringView view = tf().OpKernelConstruction_GetName(construction);
  std::string_view name(view.data, view.len);
  if (ignore_name_scope) name.remove_prefix(name.rfind('/') + 1);  // npos + 1 is 0
  return std::string(name);
}

// Reads attributes one after another; the first failure stays in the status.
class Reader {
 public:
  explicit Reader(TF_OpKernelConstruction* construction) : construction_(construction) {}

  int integer(const char* name) {
    std::int64_t value = 0;
    if (status_.is_ok()) tf().OpKernelConstruction_GetAttrInt64(construction_, name, &value, status_.get());
    return static_cast<int>(value);
  }
  double number(const char* name) {
    float value = 0;
    if (status_.is_ok()) tf().OpKernelConstruction_GetAttrFloat(construction_, name, &value, status_.get());
    return static_cast<double>(value);
  }
  bool flag(const char* name) {
    unsigned char value = 0;
    if (status_.is_ok()) tf().OpKernelConstruction_GetAttrBool(construction_, name, &value, status_.get());
    return value != 0;
  }
  void fail(const std::string& why) { tf().SetStatus(status_.get(), TfCode::kInvalidArgument, why.c_str()); }
  // Whether all went well; tells TensorFlow when not.
  bool finish() {
    if (!status_.is_ok()) tf().OpKernelConstruction_Failure(construction_, status_.get());
    return status_.is_ok();
  }

 private:
  TF_OpKernelConstruction* construction_;
  TfStatus status_;
};

}  // namespace

std::optional<Attributes> read_attributes(TF_OpKernelConstruction* construction, OpType op, bool is_grouped) {
  Reader reader(construction);
  Attributes attributes;
  attributes.op = op;
  attributes.is_grouped = is_grouped;
  attributes.process_set = reader.integer("process_set_id");
  attributes.name = wire_name(construction, reader.flag("ignore_name_scope"));
  if (op == OpType::kBroadcast) attributes.root_rank = reader.integer("root_rank");
  if (op == OpType::kAllreduce || op == OpType::kReducescatter) {
    const int code = reader.integer("reduce_op");
    if (code < 0 || code >= kReduceOpCount) {
      reader.fail("reduce_op: expected 0 to " + std::to_string(kReduceOpCount - 1) + ", got " + std::to_string(code));
    }
    attributes.reduce_op = static_cast<ReduceOp>(code);
    attributes.prescale = reader.number("prescale_factor");
    attributes.postscale = reader.number("postscale_factor");
  }
  if (!reader.finish()) return std::nullopt;
  return attributes;
}

std::optional<std::int32_t> read_process_set(TF_OpKernelConstruction* construction) {
  Reader reader(construction);
  const int id = reader.integer("process_set_id");
  if (!reader.finish()) return std::nullopt;
  return id;
}

}  // namespace hvd::tensorflow
