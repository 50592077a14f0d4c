# Third-party libraries as imported targets. Static where the product must carry them (libuv, libcrypto and libssl, yaml-cpp);
# docs/dependencies.md says why each is here.

find_package(Threads REQUIRED)

function(hvd_import_static name header archive)
  find_path(HVD_${name}_INCLUDE ${header} REQUIRED)
  find_library(HVD_${name}_LIBRARY NAMES ${archive} REQUIRED)
  add_library(hvd_third_party_${name} INTERFACE)
  target_include_directories(hvd_third_party_${name} SYSTEM INTERFACE "${HVD_${name}_INCLUDE}")
  target_link_libraries(hvd_third_party_${name} INTERFACE "${HVD_${name}_LIBRARY}" ${ARGN})
  add_library(third_party::${name} ALIAS hvd_third_party_${name})
endfunction()

function(hvd_import_headers name header)
  find_path(HVD_${name}_INCLUDE ${header} REQUIRED)
  add_library(hvd_third_party_${name} INTERFACE)
  target_include_directories(hvd_third_party_${name} SYSTEM INTERFACE "${HVD_${name}_INCLUDE}")
  add_library(third_party::${name} ALIAS hvd_third_party_${name})
endfunction()

# Debian's libuv_a.a is not position-independent: programs link it, the extension module takes the shared library. A
# target says which with the property HVD_SHARED_UV.
hvd_import_headers(uv uv.h)
find_library(HVD_uv_STATIC NAMES libuv_a.a REQUIRED)
find_library(HVD_uv_SHARED NAMES uv REQUIRED)
target_link_libraries(hvd_third_party_uv INTERFACE
  "$<IF:$<BOOL:$<TARGET_PROPERTY:HVD_SHARED_UV>>,${HVD_uv_SHARED},${HVD_uv_STATIC}>" dl pthread)
if(HVD_SANITIZE STREQUAL "thread")
  add_library(hvd_tsan_close STATIC "${CMAKE_CURRENT_LIST_DIR}/tsan_close.cc")
  target_link_options(hvd_third_party_uv INTERFACE -Wl,--wrap=syscall)
  target_link_libraries(hvd_third_party_uv INTERFACE hvd_tsan_close)
endif()
hvd_import_static(crypto openssl/evp.h libcrypto.a dl pthread)
hvd_import_static(ssl openssl/ssl.h libssl.a "${HVD_crypto_LIBRARY}" dl pthread)
hvd_import_static(yaml yaml-cpp/yaml.h libyaml-cpp.a)
hvd_import_static(gloo gloo/context.h gloo)
hvd_import_headers(boost boost/asio.hpp)
hvd_import_headers(spdlog spdlog/spdlog.h)
hvd_import_headers(json nlohmann/json.hpp)

# The processors of a host, for the launcher alone. A copy of the archive that asks nothing of libudev and loads no plugins.
find_path(HVD_hwloc_INCLUDE hwloc.h REQUIRED)
find_library(HVD_hwloc_LIBRARY NAMES libhwloc.a REQUIRED)
set(hvd_hwloc_copy "${CMAKE_BINARY_DIR}/hwloc/libhwloc.a")
if(NOT EXISTS "${hvd_hwloc_copy}")
  file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/hwloc")
  set(hvd_hwloc_renames "")
  foreach(name dlopen dlerror udev_new udev_unref udev_device_new_from_subsystem_sysname udev_device_get_property_value
               udev_device_unref)
    list(APPEND hvd_hwloc_renames "--redefine-sym" "${name}=hvd_hwloc_${name}")
  endforeach()
  execute_process(COMMAND "${CMAKE_OBJCOPY}" ${hvd_hwloc_renames} "${HVD_hwloc_LIBRARY}" "${hvd_hwloc_copy}"
                  COMMAND_ERROR_IS_FATAL ANY)
endif()
add_library(hvd_hwloc_alone STATIC "${CMAKE_CURRENT_LIST_DIR}/hwloc_alone.cc")
add_library(hvd_third_party_hwloc INTERFACE)
target_include_directories(hvd_third_party_hwloc SYSTEM INTERFACE "${HVD_hwloc_INCLUDE}")
target_link_libraries(hvd_third_party_hwloc INTERFACE "${hvd_hwloc_copy}" hvd_hwloc_alone dl m pthread)
add_library(third_party::hwloc ALIAS hvd_third_party_hwloc)

# Where PyPI's packages of NVIDIA lie, of the Python that builds; empty: nowhere.
function(hvd_find_nvidia_packages out)
  set(places "")
  find_package(Python COMPONENTS Interpreter QUIET)
  if(Python_EXECUTABLE)
    execute_process(OUTPUT_VARIABLE places OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND "${Python_EXECUTABLE}" -c
      "import importlib.util as u; s = u.find_spec('nvidia'); print(*(s and s.submodule_search_locations or []), sep=';')")
  endif()
  set(${out} ${places} PARENT_SCOPE)
endfunction()

# What tells profilers of operations: headers alone, of a CUDA toolkit or of PyPI's nvidia-nvtx. Not needed: without them the
# ranges are left out, which scripts/wheel.sh says as the last line here does.
option(HVD_NVTX "Show operations to profilers where NVTX's headers are found" ON)
set(HVD_HAS_NVTX OFF)
if(HVD_NVTX)
  find_path(HVD_NVTX_INCLUDE nvtx3/nvToolsExt.h PATHS /usr/local/cuda/include NO_CMAKE_FIND_ROOT_PATH)
  if(NOT HVD_NVTX_INCLUDE)
    hvd_find_nvidia_packages(places)
    find_path(HVD_NVTX_INCLUDE nvtx3/nvToolsExt.h PATHS ${places} PATH_SUFFIXES cu13/include nvtx/include NO_DEFAULT_PATH
              NO_CMAKE_FIND_ROOT_PATH)
  endif()
endif()
if(HVD_NVTX AND HVD_NVTX_INCLUDE)
  set(HVD_HAS_NVTX ON)
  add_library(hvd_third_party_nvtx INTERFACE)
  target_include_directories(hvd_third_party_nvtx SYSTEM INTERFACE "${HVD_NVTX_INCLUDE}")
  target_link_libraries(hvd_third_party_nvtx INTERFACE dl)
  add_library(third_party::nvtx ALIAS hvd_third_party_nvtx)
  message(STATUS "NVTX ranges: by ${HVD_NVTX_INCLUDE}")
elseif(HVD_NVTX)
  message(STATUS "NVTX ranges: none, because there is no nvtx3/nvToolsExt.h in a CUDA toolkit, nor PyPI's nvidia-nvtx in the Python that builds")
else()
  message(STATUS "NVTX ranges: none, because HVD_NVTX is OFF")
endif()
