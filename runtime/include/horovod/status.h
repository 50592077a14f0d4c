#pragma once

// Status and Result<T>: how every call of the façade reports failure.
#include "runtime/base/status.h"  // IWYU pragma: export
