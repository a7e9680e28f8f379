// CuPy's complex numbers live in this namespace; nothing else of Thrust is needed by kernels compiled at run time.
#pragma once
#define THRUST_NAMESPACE_BEGIN namespace thrust {
#define THRUST_NAMESPACE_END }
