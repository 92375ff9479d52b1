"""The program itself: refused arguments and configurations, exceptions of its own code."""

from headway.diagnose.rule import EXCEPTION, PLAIN, ROOT, rule

RULES = (
    rule(
        "code_exception",
        r"^panic: |^thread '[^']*' panicked at"
        r"|^Exception in thread \"\S+\" [\w.$]+(?:Exception|Error)"
        r"|^Unhandled exception\. [\w.]+|^(?:julia> )?ERROR: LoadError: |^Uncaught (?:\w+)?Error: ",
        "panic",
        "exception in thread",
        "unhandled exception",
        "loaderror",
        "uncaught ",
        confidence=0.86,
        role=ROOT,
        where=PLAIN,
        unless=r"(?i)out ?of ?memory|no space left|kernel panic",
    ),
    rule(
        "bad_argument",
        r"(?:: |^)error: (?:unrecognized arguments|argument |the following arguments are required"
        r"|ambiguous option|invalid choice|one of the arguments|too few arguments"
        r"|unrecognized subcommand|unexpected argument|expected |Parser key|Key "
        r"|Configuration check|too many arguments|no such option"
        r"|Validation failed)",
        "error: ",
        confidence=0.96,
        role=ROOT,
        where=PLAIN,
    ),
    rule(
        "bad_argument",
        r"^Error: (?:No such (?:option|command)|Missing (?:option|argument|parameter|command)"
        r"|Invalid value for|Got unexpected extra argument|Option )"
        r"|FATAL Flags parsing error|Unknown command line flag|UnrecognizedFlagError"
        r"|IllegalFlagValueError|Could not consume arg|unrecognized option '"
        r"|invalid option -- |Some specified arguments are not used by the HfArgumentParser"
        r"|unknown option:? -|Unrecognized options?|ERROR: The function received no value"
        r"|(?:No such option|unexpected argument)\b|Unknown (?:argument|flag|option)s?\b"
        r"|flag provided but not defined|option requires an argument",
        "error: ",
        "flag",
        "consume arg",
        "unrecognized",
        "invalid option",
        "hfargumentparser",
        "unknown",
        "no value",
        "option",
        "unexpected argument",
        confidence=0.93,
        role=ROOT,
        unless=r"(?i)^\W*warning|unexpected keyword",
    ),
    rule(
        "config_error",
        r"(?:omegaconf|hydra)\.(?:errors|core)?\.?\w*(?:Error|Exception|Value)"
        r"|ConfigAttributeError|ConfigKeyError|ConfigCompositionException|MissingMandatoryValue"
        r"|is not in struct|MissingConfigException|MisconfigurationException"
        r"|DeepSpeedConfigError|ValidationError\b|yaml\.(?:scanner|parser|constructor)\.\w+Error"
        r"|(?:toml\w*)\.\w*DecodeError|InterpolationKeyError|InstantiationException"
        r"|(?:setup|device|hardware|GPU)\b.{0,30}(?:doesn't|does not) support (?:bf16|fp16|tf32)"
        r"|Check batch related parameters|ConfigurationError|ConfigError|InvalidConfig\w*"
        r"|Error executing job with overrides|Could not override '|Could not find '\S+/\S+'"
        r"|OverrideParseException|ParamValidationError|LexerNoViableAlt",
        "omegaconf",
        "hydra",
        "config",
        "missingmandatory",
        "in struct",
        "validationerror",
        "yaml.",
        "toml",
        "interpolation",
        "instantiation",
        "batch related",
        "could not override",
        "could not find '",
        "overrideparse",
        "overrides",
        "lexernoviable",
        "support",
        confidence=0.9,
        role=ROOT,
        unless=r"Error executing job with overrides|Error in call to target",
    ),
    rule(
        "config_error",
        r"^\S+: (?:line \d+: |\d+: )?\S+: (?:unbound variable|parameter (?:null or )?not set)$",
        "unbound variable",
        "not set",
        confidence=0.9,
        role=ROOT,
        where=PLAIN,
        advice="set the variable that the script names",
    ),
    rule(
        "config_error",
        r"[Ww]orld ?size .*(?:divisible|must|not|greater|less)|not (?:evenly )?divisible"
        r"|must be divisible|not a multiple of"
        r"|(?:should|must|has to|needs to|need to|can) (?:only )?be (?:set|specified|provided"
        r"|a positive|positive|greater|less|larger|smaller|one of|in (?:the )?(?:range|\[)"
        r"|between|at (?:least|most)|enabled|disabled|non-?negative|either|a valid|used|true"
        r"|false|>|<|divisible|equal)"
        r"|(?:is|are) (?:only )?(?:not )?(?:supported|allowed|compatible|available) (?:for|with"
        r"|when|in|on|by|only|without|if)|is not (?:a )?(?:valid|supported|recognized|allowed)"
        r"|(?:mutually exclusive|cannot be (?:used|set|combined|specified|enabled)"
        r"|can't be (?:used|set)|not both|at the same time)|[Uu]nsupported (?:value|option"
        r"|backend|dtype|model|optimizer|type|device)"
        r"|[Uu]nknown (?:model|dataset|optimizer|scheduler|architecture|backend|option|config"
        r"|task|loss|mode|value|key|split|field|parameter|device|strategy)"
        r"|[Ii]nvalid (?:value|option|config|choice|setting|mode|parameter|model|dataset"
        r"|optimizer|batch|device|backend|strategy|precision|learning rate|combination)"
        r"|[Ee]xpected one of|must specify|(?:please|you (?:must|need to|have to"
        r"|should)) (?:specify|set|provide|use|pass|define|enable|disable|choose)"
        r"|required (?:config|argument|parameter|field|key|option)"
        r"|config\w* .*(?:missing|invalid|unknown|wrong|not (?:found|specified|set))"
        r"|not (?:specified|set|provided) in (?:the )?config|requires? (?:the |that )?[`'\"\-]+\w+"
        r"|^\w*Error: (?:--|`)\w+`? (?:requires|must|can only|cannot)"
        r"|Please (?:specify|provide|choose|define)\b|only works (?:in|with|on|for|when)\b"
        r"|not compatible with [`'\"\-]"
        r"|[Yy]ou can(?:'t|not) (?:train|fine-?tune|use|set|combine|specify|enable)",
        "world",
        "divisible",
        "multiple of",
        "should",
        "must",
        "has to",
        "need",
        "can ",
        "support",
        "allowed",
        "compatible",
        "available",
        "valid",
        "recognized",
        "exclusive",
        "cannot be",
        "can't be",
        "not both",
        "same time",
        "unknown",
        "expected one of",
        "please",
        "only works",
        "you ",
        "required",
        "config",
        "not specified",
        "not set",
        "not provided",
        "requires",
        confidence=0.8,
        fuzzy=True,
        role=ROOT,
        where=EXCEPTION,
        unless=r"^(?:\w+\.)*(?:TypeError|NameError|AttributeError|IndexError|UnboundLocalError"
        r"|KeyError|NotImplementedError|ZeroDivisionError|OSError|OverflowError"
        r"|StopIteration)\b"
        r"|[Tt]ensors? (?!parallel|model)|same device|same dtype|shape|backward|grad\b|mat1"
        r"|input type|dimension"
        r"|scalar|element|expected all|expected input|Expected (?!one of)",
    ),
    rule(
        "config_error",
        r"(?i)(?:environment variable|env(?:ironment)? var)\b.{0,60}(?:not set|unset|missing"
        r"|must be set|required|undefined|not defined)"
        r"|(?:variable|[A-Z_]{4,}) (?:is not set|must be set|is not defined in the environment)",
        "variable",
        "env",
        "not set",
        "must be set",
        confidence=0.82,
        fuzzy=True,
        where=EXCEPTION,
        unless=r"local variable|NameError|UnboundLocal",
    ),
    rule(
        "code_exception",
        r"Expected to have finished reduction in the prior iteration"
        r"|one of the variables needed for gradient computation has been modified"
        r"|Trying to backward through the graph a second time"
        r"|mat1 and mat2 shapes cannot be multiplied"
        r"|Expected all tensors to be on the same device"
        r"|must match the size of tensor|shape '\[[^']*' is invalid for input"
        r"|element 0 of tensors does not require grad|stack expects each tensor to be equal size"
        r"|index out of range in self|expected scalar type|Target \S+ is out of bounds"
        r"|expected input\[|Given groups=|size of tensor a"
        r"|Default process group has not been initialized"
        r"|Cannot re-initialize CUDA in forked subprocess|does not require grad"
        r"|invalid device ordinal",
        "ordinal",
        "reduction in the prior",
        "gradient computation",
        "second time",
        "mat1",
        "same device",
        "size of tensor",
        "is invalid for input",
        "require grad",
        "stack expects",
        "out of range in self",
        "scalar type",
        "out of bounds",
        "expected input",
        "given groups",
        "process group has not",
        "re-initialize cuda",
        confidence=0.93,
        role=ROOT,
        where=EXCEPTION,
    ),
    rule(
        "code_exception",
        r"^(?:SyntaxError|IndentationError|TabError)\b",
        "syntaxerror",
        "indentationerror",
        "taberror",
        confidence=0.94,
        role=ROOT,
        where=EXCEPTION,
    ),
)
