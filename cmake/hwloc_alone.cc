// What Debian's static hwloc asks of others, as HvdDependencies.cmake renames it, answered with "there is none":
// libudev of which there is no static library, and through which it would only learn of the names of disks; and
// dlopen(), by which it would load plugins of this host's hwloc, with X11 and a second C++ library, into whoever asks
// for the cores.
extern "C" {

void* hvd_hwloc_dlopen(const char*, int) { return nullptr; }
const char* hvd_hwloc_dlerror() { return "horovodrun takes no plugins"; }

void* hvd_hwloc_udev_new() { return nullptr; }
void* hvd_hwloc_udev_unref(void*) { return nullptr; }
void* hvd_hwloc_udev_device_new_from_subsystem_sysname(void*, const char*, const char*) { return nullptr; }
const char* hvd_hwloc_udev_device_get_property_value(void*, const char*) { return nullptr; }
void* hvd_hwloc_udev_device_unref(void*) { return nullptr; }
}
