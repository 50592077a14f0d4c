#include "bench/cpp/arms.h"

#include <dlfcn.h>

#include <cstdint>

namespace hvd::bench {
namespace {

// What the two libraries' mpi.h make of MPI's names. Both keep that over all versions of one shared-object number.
struct Library {
  const char* name;
  const char* file;
};
constexpr Library kLibraries[] = {{"open_mpi", "libmpi.so.40"}, {"mpich", "libmpich.so.12"}};

class MpiArm : public Arm {
 public:
  explicit MpiArm(const Library& library) : file_(dlopen(library.file, RTLD_NOW | RTLD_GLOBAL)) {
    if (file_ == nullptr) die(dlerror());
    function<int(int*, char***)>("MPI_Init")(nullptr, nullptr);
  }
  ~MpiArm() override { function<int()>("MPI_Finalize")(); }
  MpiArm(const MpiArm&) = delete;
  MpiArm& operator=(const MpiArm&) = delete;

 protected:
  void* symbol(const char* name) const {
    void* const found = dlsym(file_, name);
    if (found == nullptr) die(dlerror());
    return found;
  }
  template <typename Type>
  Type* function(const char* name) const {
    return reinterpret_cast<Type*>(symbol(name));
  }

 private:
  void* const file_;
};

class OpenMpiArm final : public MpiArm {
 public:
  using MpiArm::MpiArm;
  void run(float* data, std::int64_t count) override {
    void* const in_place = reinterpret_cast<void*>(1);
    allreduce_(in_place, data, static_cast<int>(count), float32_, sum_, world_);
  }

 private:
  using Allreduce = int(const void*, void*, int, void*, void*, void*);
  Allreduce* const allreduce_ = function<Allreduce>("MPI_Allreduce");
  void* const float32_ = symbol("ompi_mpi_float");
  void* const sum_ = symbol("ompi_mpi_op_sum");
  void* const world_ = symbol("ompi_mpi_comm_world");
};

class MpichArm final : public MpiArm {
 public:
  using MpiArm::MpiArm;
  void run(float* data, std::int64_t count) override {
    void* const in_place = reinterpret_cast<void*>(-1);
    allreduce_(in_place, data, static_cast<int>(count), 0x4c00040a, 0x58000003, 0x44000000);
  }

 private:
  using Allreduce = int(const void*, void*, int, int, int, int);  // MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD
  Allreduce* const allreduce_ = function<Allreduce>("MPI_Allreduce");
};

}  // namespace

std::unique_ptr<Arm> make_mpi_arm(const std::string& name) {
  if (name == kLibraries[0].name) return std::make_unique<OpenMpiArm>(kLibraries[0]);
  if (name == kLibraries[1].name) return std::make_unique<MpichArm>(kLibraries[1]);
  return nullptr;
}

}  // namespace hvd::bench
