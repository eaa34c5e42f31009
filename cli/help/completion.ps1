# PowerShell completion of @PROGRAM@
Register-ArgumentCompleter -Native -CommandName '@PROGRAM@' -ScriptBlock {
    param($part, $commandAst, $cursor)
    $words = @()
    $current = ''
    foreach ($element in $commandAst.CommandElements | Select-Object -Skip 1) {
        $isText = $element -is [System.Management.Automation.Language.StringConstantExpressionAst]
        $text = if ($isText) { $element.Value } else { $element.Extent.Text }
        if ($element.Extent.StartOffset -ge $cursor) { break }
        if ($element.Extent.EndOffset -ge $cursor) { $current = $text } else { $words += $text }
    }
    # an argument without characters is lost before PowerShell 7.3
    $isLost = $PSVersionTable.PSVersion -lt [version]'7.3' -or $PSNativeCommandArgumentPassing -eq 'Legacy'
    $words += if ($current -eq '' -and $isLost) { '""' } else { $current }
    $lines = @(& '@PROGRAM@' '@COMPLETE@' @words 2>$null)
    if ($lines.Count -eq 0) { return }
    # of --flag=value, the program proposes the value
    $flag = if ($current -match '^--[^=]+=') { $Matches[0] } else { '' }
    if ($lines[-1] -in ':0', ':16') {
        foreach ($file in [System.Management.Automation.CompletionCompleters]::CompleteFilename($current.Substring($flag.Length))) {
            [System.Management.Automation.CompletionResult]::new(
                $flag + $file.CompletionText, $file.ListItemText, $file.ResultType, $file.ToolTip)
        }
        return
    }
    if ($lines.Count -eq 1) { return '' } # with nothing at all, PowerShell would propose files
    foreach ($line in $lines[0..($lines.Count - 2)]) {
        $word, $help = $line -split "`t", 2
        # a name is never run: what is more than letters, digits and some signs is quoted
        $typed = $flag + $word
        if ($typed -notmatch '^[A-Za-z0-9_./:=-]+$') { $typed = "'" + $typed.Replace("'", "''") + "'" }
        $tip = if ($help) { $help } else { $word }
        [System.Management.Automation.CompletionResult]::new($typed, $word, 'ParameterValue', $tip)
    }
}
