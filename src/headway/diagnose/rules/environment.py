"""The environment of the program: modules, shared libraries, versions that do not fit together."""

from headway.diagnose.rule import EXCEPTION, PLAIN, ROOT, rule

RULES = (
    rule(
        "shared_library",
        r"cannot open shared object file|undefined symbol|error while loading shared libraries"
        r"|symbol lookup error|version `\w+_[\d.]+' not found"
        r"|Library not loaded|DLL load failed|wrong ELF class|invalid ELF header"
        r"|[Cc]ould not load library lib\w+|cannot load library|libcud\w+\.so\S*: "
        r"|unable to load .*\.so\b|failed to load .*\.so\b|cannot allocate memory in static TLS"
        r"|GLIBC(?:XX)?_[\d.]+' not found",
        "shared object",
        "undefined symbol",
        "shared libraries",
        "symbol lookup",
        "version `",
        "library not loaded",
        "dll load",
        "elf ",
        "load library",
        "libcud",
        "unable to load",
        "failed to load",
        "static tls",
        confidence=0.95,
        role=ROOT,
        unless=r"(?i)dlerror: .*; ignore|Could not load dynamic library .*dlerror"
        r"|\bW\b.*dso_loader|ignore (?:above|this)|if you do not have a GPU|INFO|warning",
    ),
    rule(
        "version_conflict",
        r"VersionConflict|DistributionNotFound|dtype size changed|compiled using NumPy 1"
        r"|module compiled against (?:ABI|API) version"
        r"|is required for a normal functioning of this module, but found"
        r"|were compiled with different CUDA|torchvision::nms does not exist"
        r"|mismatches the version that was used to compile"
        r"|Descriptors cannot (?:not )?be created directly|generated code is out of date"
        r"|Could not find a version that satisfies|No matching distribution found"
        r"|ResolutionImpossible|UnsatisfiableError|LibMambaUnsatisfiable"
        r"|does not recognize this architecture|requires (?:the )?(?:\w+ )?[Pp]ython ?(?:>="
        r"|[\d.]+)|incompatible (?:versions?|with (?:the )?(?:installed|current))"
        r"|(?:requires|needs) [\w\-\[\]]+ ?(?:>=|==|<=|~=|<|>)|version (?:mismatch|conflict"
        r"|incompatib)|is (?:not compatible|incompatible) with"
        r"|(?:please )?(?:upgrade|update|downgrade|install) (?:your "
        r"|the )?(?:version of )?[\w`'-]+ (?:to (?:at least|version)|>=|==|version)"
        r"|cached in a \w+ is not supported|unsupported version|built with a different version"
        r"|older? version of|newer version of|too old version"
        r"|minimum (?:required )?version|version .{0,30}(?:is required|or (?:higher|newer|later"
        r"|above))|ABI (?:version )?mismatch|binary incompatib|Numpy is not available"
        r"|Failed to import \S+ because of the following error",
        "versionconflict",
        "distributionnotfound",
        "size changed",
        "numpy",
        "compiled",
        "normal functioning",
        "nms",
        "mismatch",
        "descriptors",
        "generated code",
        "find a version",
        "matching distribution",
        "resolutionimpossible",
        "unsatisfiable",
        "architecture",
        "requires",
        "needs",
        "compatible",
        "version",
        "upgrade",
        "update",
        "install",
        "downgrade",
        "cached in a",
        "abi",
        "failed to import",
        confidence=0.86,
        fuzzy=True,
        role=ROOT,
        where=EXCEPTION,
        unless=r"(?i)compute capability|driver|conversion|inversion|requires_grad"
        r"|incompatible with (?:the layer|shape|input|operand|dtype)|compatible with [`'\"\-]",
    ),
    rule(
        "version_conflict",
        r"Tokenizer class \w+ does not exist or is not currently imported"
        r"|CUDAMismatchException|does not match the version torch was compiled with"
        r"|Keras \d only supports|Weights only load failed"
        r"|Unsupported global: GLOBAL",
        "tokenizer class",
        "cudamismatch",
        "was compiled with",
        "only supports",
        "weights only load",
        "unsupported global",
        confidence=0.9,
        role=ROOT,
        where=EXCEPTION,
    ),
    rule(
        "version_conflict",
        r"numpy\.core\.multiarray failed to import|_ARRAY_API not found",
        "multiarray failed",
        "_array_api",
        confidence=0.93,
        role=ROOT,
        where=EXCEPTION,
        advice="pip install 'numpy<2', or newer builds of the packages that use it",
    ),
    rule(
        "version_conflict",
        r"^ERROR: (?:Could not find a version that satisfies|No matching distribution"
        r"|Cannot install|ResolutionImpossible)"
        r"|A module that was compiled using NumPy 1|Tensorflow .*incompatible"
        r"|RuntimeError: Detected that PyTorch and torchvision"
        r"|error: .*requires (?:a different )?Python",
        "error:",
        "numpy 1",
        "incompatible",
        "torchvision",
        confidence=0.7,
        role=ROOT,
        where=PLAIN,
    ),
    rule(
        "version_conflict",
        r"(?P<need>[\w.\-]+ ?(?:>=|==|<=|~=|!=|<"
        r"|>)[\w.,<>=!~]+) is required for a normal functioning",
        "normal functioning",
        confidence=0.95,
        role=ROOT,
        advice="pip install '{need}'",
    ),
    rule(
        "version_conflict",
        r"cannot import name '(?P<name>[^']+)' from '(?P<module>[\w.]+)' \(\S*(?:site"
        r"|dist)-packages",
        "cannot import name",
        confidence=0.9,
        role=ROOT,
        advice="pip show {module}: the installed version does not have {name}",
    ),
    rule(
        "version_conflict",
        r"module '(?:numpy|np|PIL|torch|tensorflow|jax|collections|pkg_resources|pkgutil"
        r"|transformers|datasets|sklearn|scipy|pandas|keras|cv2|inspect|ast)[\w.]*'"
        r" has no attribute|partially initialized module 'cv2'|np\.(?:float|bool|int"
        r"|object)_?` was (?:removed|a deprecated)",
        "has no attribute",
        "partially initialized",
        "np.",
        confidence=0.85,
        fuzzy=True,
        role=ROOT,
        where=EXCEPTION,
        # A misspelt name: Python knows a better one.
        unless=r"module '(?!numpy)[\w.]+' has no attribute .*Did you mean",
    ),
    rule(
        "import_error",
        r"(?:ModuleNotFoundError: )?No module named '?(?P<module>[\w.]+)'?|ModuleNotFoundError",
        "no module named",
        "modulenotfound",
        confidence=0.96,
        role=ROOT,
        advice="pip install {module}, in the environment that the job uses",
        unless=r"(?i)warning|falling back|skipping|optional|ignored|disabled|not available,",
    ),
    rule(
        "import_error",
        r"^(?:ImportError|\w+\.ImportError)\b|PackageNotFoundError"
        r"|requires the .{1,60} (?:library|package)|but (?:it was not|is not|was not) (?:found"
        r"|installed)"
        r"|(?:is|are) not installed|[Pp]lease (?:pip )?install\b|needs? to be installed"
        r"|(?:must|need to|needs to) have [\w-]+ installed"
        r"|is required\b.{0,60}pip install|\(?(?:try|run)?:? ?[`']?pip3? install (?P<package>[\w-]+)[`']? to get it",
        "importerror",
        "packagenotfound",
        "requires the",
        "not found",
        "installed",
        "install",
        confidence=0.87,
        fuzzy=True,
        role=ROOT,
        where=EXCEPTION,
    ),
)
