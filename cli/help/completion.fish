# fish completion of @PROGRAM@
function __@NAME@_complete
    set -l words (commandline --tokenize --cut-at-cursor --current-process)
    set -l current (commandline --current-token --cut-at-cursor)
    set -l lines (command $words[1] @COMPLETE@ $words[2..-1] "$current" 2>/dev/null)
    test (count $lines) -gt 0; or return
    # of --flag=value, the program proposes the value
    set -l value (string replace --regex -- '^--[^=]*=' '' "$current")
    set -l prefix (string sub --length (math (string length -- "$current") - (string length -- "$value")) -- "$current")
    switch $lines[-1]
        case :0
            printf '%s\n' $prefix(__fish_complete_path "$value")
        case :16
            printf '%s\n' $prefix(__fish_complete_directories "$value" '')
        case '*'
            test (count $lines) -gt 1; and printf '%s\n' $prefix$lines[1..-2]
    end
end
complete --command @PROGRAM@ --no-files --arguments '(__@NAME@_complete)'
