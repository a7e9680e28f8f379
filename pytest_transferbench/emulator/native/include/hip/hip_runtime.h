// Everything is already there: device.h comes before every source.
#pragma once
#include <hip/hip_version.h>
