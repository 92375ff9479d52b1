"""GPUs: memory that ran out, kernels that failed, drivers that do not fit, hardware that broke."""

from headway.diagnose.rule import FACT, SUMMARY, rule

RULES = (
    rule(
        "gpu_oom",
        r"(?:CUDA|HIP|XPU|NPU|MPS backend|MPS|MLU) out of memory"
        r"|CUDA(?: runtime)? error[^:]{0,20}: out of memory"
        r"|cuda runtime error \(2\)|cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY"
        r"|torch\.(?:cuda\.)?OutOfMemoryError"
        r"|Cuda failure (?:\d+ )?'out of memory|CUDA driver error: out of memory|(?:CUBLAS"
        r"|CUDNN)_STATUS_ALLOC_FAILED"
        r"|hipErrorOutOfMemory|Warp CUDA error.*out of memory|CUDA ran out of memory"
        r"|GPU ran out of memory|cudaMalloc\b.{0,40}out of memory",
        "out of memory",
        "outofmemory",
        "memoryallocation",
        "out_of_memory",
        "alloc_failed",
        "runtime error (2)",
        confidence=0.96,
        unless=r"(?i)to avoid|if you (?:get|run|see|hit)|in case of|may (?:cause|lead|run)|might"
        r"|\bretry\w*\b.*smaller"
        r"|^\W*(?:#|\"|//)|failed to allocate .* from device: CUDA_ERROR_OUT_OF_MEMORY.*\bI\b",
    ),
    rule(
        "gpu_oom",
        r"RESOURCE_EXHAUSTED:? .{0,80}(?:[Oo]ut of memory|[Ff]ailed to allocate|OOM|hbm|memory)"
        r"|OOM when allocating tensor"
        r"|\bResourceExhaustedError\b|Ran out of memory in memory space"
        r"|Failed to allocate memory for requested buffer"
        r"|Allocation \(size=\d+\) would exceed memory",
        "resource_exhausted",
        "resourceexhausted",
        "oom when",
        "ran out of memory",
        "failed to allocate memory for requested",
        "would exceed memory",
        confidence=0.95,
        unless=r"(?i)quota|grpc|message larger",
    ),
    rule(
        "gpu_oom",
        r"No available memory for the cache blocks|not enough (?:GPU )?memory.{0,60}(?:KV cache"
        r"|GPU)"
        r"|Free memory on device .* is less than desired GPU memory utilization"
        r"|larger than the available KV cache memory"
        r"|Not enough memory\. Please try to increase --mem-fraction-static",
        "memory",
        confidence=0.88,
    ),
    # Hardware, as the driver reports it.
    rule("gpu_off_bus", r"\bXid\b.*?(?:\)|:)\W*79\b|Xid\W+79\b", "xid", confidence=0.97, role=FACT),
    rule(
        "gpu_off_bus",
        r"fallen off the bus|GPU is lost"
        r"|[Uu]nable to determine the device handle for GPU|GPU requires reset|RmInitAdapter failed"
        r"|CUDA error: device (?:is )?lost|\bGPU_LOST\b|ERROR_GPU_IS_LOST",
        "xid",
        "off the bus",
        "is lost",
        "device handle",
        "requires reset",
        "rminitadapter",
        "gpu_lost",
        "gpu_is_lost",
        "device lost",
        confidence=0.95,
        role=FACT,
    ),
    rule(
        "gpu_off_bus",
        r"\bXid\b.*?(?:\)|:)\W*(?:119|120|62)\b|GSP (?:RPC )?(?:timeout|error)"
        r"|Timeout waiting for RPC from GSP",
        "xid",
        "gsp",
        confidence=0.72,
        role=FACT,
    ),
    rule(
        "gpu_ecc",
        r"\bXid\b.*?(?:\)|:)\W*(?:48|63|64|94|95|92|140)\b|uncorrectable ECC error"
        r"|[Dd]ouble[- ][Bb]it ECC"
        r"|CUDA error: uncorrectable ECC|[Rr]ow[ -]?[Rr]emap\w*.*(?:fail|pending)"
        r"|ECC error encountered"
        r"|UNCORRECTABLE_ECC|uncorrectable.*(?:DRAM|SRAM|HBM)|cudaErrorECCUncorrectable"
        r"|contained memory error",
        "xid",
        "ecc",
        "remap",
        "uncorrectable",
        "contained",
        confidence=0.95,
        role=FACT,
        unless=r"(?i)remapp\w* (?:rows )?(?:pending|failure occurred)?\s*:\s*(?:no|0)\b"
        r"|ecc\S* (?:mode|errors?)\s*:\s*(?:enabled|0|n/a)|NVLink",
    ),
    rule(
        "nvlink",
        r"\bXid\b.*?(?:\)|:)\W*(?:74|137|144|145|149)\b|[Uu]ncorrectable NVLink error"
        r"|NVLink.{0,40}(?:fatal|error|failure|down)"
        r"|\bSXid\b|nvswitch.{0,40}(?:fatal|error|fail)|cudaErrorNvlinkUncorrectable",
        "xid",
        "nvlink",
        "nvswitch",
        confidence=0.94,
        role=FACT,
        unless=r"(?i)NVLink is not|nvlink: *(?:no|disabled)|non-fatal",
    ),
    rule(
        "cuda_fault",
        r"\bXid\b.*?(?:\)|:)\W*(?:13|31|32|43|45|69|8|11)\b",
        "xid",
        confidence=0.72,
        role=SUMMARY,
    ),
    # Kernels that failed.
    rule(
        "cuda_fault",
        r"illegal memory access|device-side assert|unspecified launch failure|misaligned address"
        r"|an illegal instruction was encountered|CUDA_ERROR_(?:ILLEGAL_ADDRESS|LAUNCH_FAILED"
        r"|ASSERT|MISALIGNED_ADDRESS|UNKNOWN)"
        r"|CUDA error: (?:unknown error|invalid program counter|the launch timed out"
        r"|hardware stack error|invalid argument)"
        r"|cudaErrorIllegalAddress|cudaErrorAssert|cudaErrorLaunchFailure|hipError(?:Illegal"
        r"|LaunchFailure)"
        r"|Memory access fault by GPU|HSA_STATUS_ERROR|cuda runtime error \((?:59|77|700|710"
        r"|719)\)",
        "illegal",
        "device-side",
        "launch failure",
        "misaligned",
        "cuda_error_",
        "cuda error",
        "cudaerror",
        "hiperror",
        "access fault",
        "hsa_status",
        "cuda runtime error (",
        confidence=0.94,
        unless=r"(?i)might be asynchronously|consider passing|compile with|^\W*warning",
    ),
    rule(
        "cuda_fault",
        r"(?:CUBLAS|CUDNN|CUFFT|CUSOLVER|CUSPARSE)_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR"
        r"|MAPPING_ERROR|NOT_INITIALIZED"
        r"|ARCH_MISMATCH|BAD_PARAM|NOT_SUPPORTED)|cuBLAS API failed"
        r"|Assertion `[^`']*' failed\.?$.*block: \[",
        "_status_",
        "cublas api",
        "block: [",
        confidence=0.84,
    ),
    rule(
        "cuda_fault",
        r"block: \[\d+,\d+,\d+\], thread: \[\d+,\d+,\d+\] Assertion",
        "thread: [",
        confidence=0.9,
    ),
    rule(
        "cuda_fault",
        r"CUDA error: (?!out of memory|no kernel|invalid device|no CUDA|initialization|un\w*ECC"
        r"|uncorr)\w",
        "cuda error:",
        confidence=0.78,
    ),
    # Drivers and devices.
    rule(
        "driver_mismatch",
        r"driver version is insufficient|NVIDIA driver on your system is too old"
        r"|[Ff]ound no NVIDIA driver"
        r"|no CUDA-capable device is detected|couldn't communicate with the NVIDIA driver"
        r"|Driver/library version mismatch"
        r"|forward compatibility was attempted on non supported HW"
        r"|CUDA_ERROR_(?:SYSTEM_DRIVER_MISMATCH|COMPAT_NOT_SUPPORTED|NO_DEVICE)"
        r"|No CUDA GPUs are available|system not yet initialized"
        r"|CUDA initialization: (?:CUDA )?unknown error"
        r"|nvml error: driver not loaded|could not select device driver"
        r"|unsatisfied condition: cuda|unsupported toolchain"
        r"|no kernel image is available|hipErrorNoBinaryForGpu|CUDA_ERROR_INVALID_DEVICE\b"
        r"|cudaErrorInsufficientDriver"
        r"|No HIP GPUs are available|cudaErrorNoKernelImage|nvidia-container-cli: .*error"
        r"|NVML_ERROR_DRIVER_NOT_LOADED"
        r"|CUDA driver initialization failed|[Ff]ailed to initialize NVML"
        r"|driver/library version mismatch|unsupported display driver",
        "driver",
        "no cuda",
        "no hip",
        "forward compat",
        "not yet initialized",
        "cuda initialization",
        "unsatisfied condition",
        "toolchain",
        "kernel image",
        "nobinary",
        "nokernelimage",
        "no_device",
        "invalid_device",
        "compat_not",
        "container-cli",
        "initialize nvml",
        confidence=0.93,
        unless=r"(?i)^.{0,60}\bwarning\b(?!.*raise)|falling back|will (?:use|run on) cpu",
    ),
    rule(
        "driver_mismatch",
        r"Attempting to deserialize object on a CUDA device"
        r"|Cannot access accelerator device when none is available",
        "deserialize object",
        "accelerator device",
        confidence=0.88,
    ),
    rule(
        "driver_mismatch",
        r"Torch not compiled with CUDA enabled|torch\.cuda\.is_available\(\) is False"
        r"|Attempting to deserialize object on a CUDA device|not compiled with GPU support"
        r"|No GPU (?:found|detected|available)"
        r"|CUDA is not available|requires? (?:a )?(?:CUDA|GPU).{0,30}(?:not (?:found|available))",
        "cuda",
        "gpu",
        confidence=0.72,
        where="exception",
    ),
)
