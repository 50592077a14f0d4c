#include "python/src/tensorflow/types.h"

#include <utility>

namespace hvd::tensorflow {

namespace {

constexpr std::pair<TfType, DataType> kTypes[] = {
    {TfType::kUint8, DataType::kUint8},       {TfType::kInt8, DataType::kInt8},
    {TfType::kUint16, DataType::kUint16},     {TfType::kInt16, DataType::kInt16},
    {TfType::kInt32, DataType::kInt32},       {TfType::kInt64, DataType::kInt64},
    {TfType::kHalf, DataType::kFloat16},      {TfType::kFloat, DataType::kFloat32},
    {TfType::kDouble, DataType::kFloat64},    {TfType::kBool, DataType::kBool},
    {TfType::kBfloat16, DataType::kBfloat16},
};

}  // namespace

std::optional<DataType> from_tf(TfType type) {
  for (const auto& [theirs, ours] : kTypes) {
    if (theirs == type) return ours;
  }
  return std::nullopt;
}

TfType to_tf(DataType dtype) {
  for (const auto& [theirs, ours] : kTypes) {
    if (ours == dtype) return theirs;
  }
  return TfType::kUint8;
}

TfCode to_tf(StatusCode code) {
  switch (code) {
    case StatusCode::kOk: return TfCode::kOk;
    case StatusCode::kInvalidArgument: return TfCode::kInvalidArgument;
    case StatusCode::kPrecondition: return TfCode::kFailedPrecondition;
    default: return TfCode::kUnknown;
  }
}

Shape shape_of(const TF_Tensor* tensor) {
  Shape shape(static_cast<std::size_t>(tf().NumDims(tensor)));
  for (std::size_t i = 0; i < shape.size(); ++i) shape[i] = tf().Dim(tensor, static_cast<int>(i));
  return shape;
}

}  // namespace hvd::tensorflow
