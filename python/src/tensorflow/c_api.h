#pragma once

#include <cstddef>
#include <cstdint>

#include "horovod/status.h"

// TensorFlow's C API as far as we use it, declared by us: building needs no TensorFlow, and one library serves all
// versions. The originals: tensorflow/c/{ops,kernels,tf_tensor,tf_status}.h, stable since 2.15.
extern "C" {
struct TF_Status;
struct TF_Tensor;
struct TF_OpDefinitionBuilder;
struct TF_ShapeInferenceContext;
struct TF_ShapeHandle;
struct TF_KernelBuilder;
struct TF_OpKernelConstruction;
struct TF_OpKernelContext;
struct TF_AsyncOpKernelDoneCallback;
struct TF_StringView {
  const char* data;
  std::size_t len;
};
}

namespace hvd::tensorflow {

// TF_Code
enum class TfCode : int {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kFailedPrecondition = 9,
  kAborted = 10,
  kInternal = 13,
};

// TF_DataType
enum class TfType : int {
  kFloat = 1,
  kDouble = 2,
  kInt32 = 3,
  kUint8 = 4,
  kInt16 = 5,
  kInt8 = 6,
  kInt64 = 9,
  kBool = 10,
  kBfloat16 = 14,
  kUint16 = 17,
  kHalf = 19,
};

using CreateFn = void* (*)(TF_OpKernelConstruction*);
using ComputeFn = void (*)(void*, TF_OpKernelContext*);
using ComputeAsyncFn = void (*)(void*, TF_OpKernelContext*, TF_AsyncOpKernelDoneCallback*);
using DeleteFn = void (*)(void*);
using FreeFn = void (*)(void* data, std::size_t bytes, void* argument);
using ShapeFn = void (*)(TF_ShapeInferenceContext*, TF_Status*);

// F(result, name without TF_, arguments)
#define HVD_TF_FUNCTIONS(F)                                                                                            \
  F(TF_Status*, NewStatus, ())                                                                                         \
  F(void, DeleteStatus, (TF_Status*))                                                                                  \
  F(void, SetStatus, (TF_Status*, TfCode, const char*))                                                                \
  F(TfCode, GetCode, (const TF_Status*))                                                                               \
  F(const char*, Message, (const TF_Status*))                                                                          \
  F(TF_Tensor*, NewTensor, (TfType, const std::int64_t*, int, void*, std::size_t, FreeFn, void*))                      \
  F(void, DeleteTensor, (TF_Tensor*))                                                                                  \
  F(TfType, TensorType, (const TF_Tensor*))                                                                            \
  F(int, NumDims, (const TF_Tensor*))                                                                                  \
  F(std::int64_t, Dim, (const TF_Tensor*, int))                                                                        \
  F(void*, TensorData, (const TF_Tensor*))                                                                             \
  F(TF_OpDefinitionBuilder*, NewOpDefinitionBuilder, (const char*))                                                    \
  F(void, RegisterOpDefinition, (TF_OpDefinitionBuilder*, TF_Status*))                                                 \
  F(void, OpDefinitionBuilderAddAttr, (TF_OpDefinitionBuilder*, const char*))                                          \
  F(void, OpDefinitionBuilderAddInput, (TF_OpDefinitionBuilder*, const char*))                                         \
  F(void, OpDefinitionBuilderAddOutput, (TF_OpDefinitionBuilder*, const char*))                                        \
  F(void, OpDefinitionBuilderSetIsStateful, (TF_OpDefinitionBuilder*, bool))                                           \
  F(void, OpDefinitionBuilderSetShapeInferenceFunction, (TF_OpDefinitionBuilder*, ShapeFn))                            \
  F(std::int64_t, ShapeInferenceContextNumInputs, (TF_ShapeInferenceContext*))                                         \
  F(TF_ShapeHandle*, NewShapeHandle, ())                                                                               \
  F(void, DeleteShapeHandle, (TF_ShapeHandle*))                                                                        \
  F(void, ShapeInferenceContextGetInput, (TF_ShapeInferenceContext*, int, TF_ShapeHandle*, TF_Status*))                \
  F(void, ShapeInferenceContextSetOutput, (TF_ShapeInferenceContext*, int, TF_ShapeHandle*, TF_Status*))               \
  F(TF_ShapeHandle*, ShapeInferenceContextScalar, (TF_ShapeInferenceContext*))                                         \
  F(TF_ShapeHandle*, ShapeInferenceContextVectorFromSize, (TF_ShapeInferenceContext*, std::size_t))                    \
  F(int, ShapeInferenceContextRankKnown, (TF_ShapeInferenceContext*, TF_ShapeHandle*))                                 \
  F(std::int64_t, ShapeInferenceContextRank, (TF_ShapeInferenceContext*, TF_ShapeHandle*))                             \
  F(void, ShapeInferenceContextSubshape,                                                                               \
    (TF_ShapeInferenceContext*, TF_ShapeHandle*, std::int64_t, std::int64_t, TF_ShapeHandle*, TF_Status*))             \
  F(void, ShapeInferenceContextConcatenateShapes,                                                                      \
    (TF_ShapeInferenceContext*, TF_ShapeHandle*, TF_ShapeHandle*, TF_ShapeHandle*, TF_Status*))                        \
  F(TF_KernelBuilder*, NewKernelBuilder, (const char*, const char*, CreateFn, ComputeFn, DeleteFn))                    \
  F(TF_KernelBuilder*, NewAsyncKernelBuilder, (const char*, const char*, CreateFn, ComputeAsyncFn, DeleteFn))          \
  F(void, KernelBuilder_HostMemory, (TF_KernelBuilder*, const char*))                                                  \
  F(void, RegisterKernelBuilder, (const char*, TF_KernelBuilder*, TF_Status*))                                         \
  F(TF_StringView, OpKernelConstruction_GetName, (TF_OpKernelConstruction*))                                           \
  F(void, OpKernelConstruction_GetAttrInt64, (TF_OpKernelConstruction*, const char*, std::int64_t*, TF_Status*))       \
  F(void, OpKernelConstruction_GetAttrFloat, (TF_OpKernelConstruction*, const char*, float*, TF_Status*))              \
  F(void, OpKernelConstruction_GetAttrBool, (TF_OpKernelConstruction*, const char*, unsigned char*, TF_Status*))       \
  F(void, OpKernelConstruction_Failure, (TF_OpKernelConstruction*, TF_Status*))                                        \
  F(void, OpKernelContext_Failure, (TF_OpKernelContext*, TF_Status*))                                                  \
  F(int, NumInputs, (TF_OpKernelContext*))                                                                             \
  F(void, GetInput, (TF_OpKernelContext*, int, TF_Tensor**, TF_Status*))                                               \
  F(void, SetOutput, (TF_OpKernelContext*, int, const TF_Tensor*, TF_Status*))                                         \
  F(TF_Tensor*, AllocateOutput, (TF_OpKernelContext*, int, TfType, const std::int64_t*, int, std::size_t, TF_Status*)) \
  F(TF_Tensor*, ForwardInputOrAllocateOutput,                                                                          \
    (TF_OpKernelContext*, const int*, int, int, const std::int64_t*, int, int*, TF_Status*))                           \
  F(void, RunAsyncOpKernelDoneCallback, (TF_AsyncOpKernelDoneCallback*))

// Pointers to the functions above.
struct TfApi {
// NOLINTNEXTLINE(bugprone-macro-parentheses): parts of a declaration
#define HVD_TF_MEMBER(result, name, arguments) result(*name) arguments = nullptr;
  HVD_TF_FUNCTIONS(HVD_TF_MEMBER)
#undef HVD_TF_MEMBER
};

// The address of a function in the TensorFlow that this process has loaded, or null.
void* find_tf_symbol(const char* symbol);
// Finds all functions in the TensorFlow that this process has loaded. kPrecondition names what is missing.
Status load_tf_api();
// Requires: load_tf_api() succeeded. Any thread.
const TfApi& tf();

// A TF_Status with its owner.
class TfStatus {
 public:
  TfStatus() : status_(tf().NewStatus()) {}
  ~TfStatus() { tf().DeleteStatus(status_); }
  TfStatus(const TfStatus&) = delete;
  TfStatus& operator=(const TfStatus&) = delete;

  TF_Status* get() const { return status_; }
  bool is_ok() const { return tf().GetCode(status_) == TfCode::kOk; }
  // OK, or kInternal with TensorFlow's text.
  Status to_status() const;

 private:
  TF_Status* status_;
};

}  // namespace hvd::tensorflow
